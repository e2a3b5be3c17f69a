# An image that trains with Weft, as a user without rights:
#
#     docker build --build-arg WEFT_COMMIT=$(git rev-parse --short=12 HEAD) -t weft:0.2 .
#
# --build-arg TORCH=https://download.pytorch.org/whl/cu126 takes a torch for GPUs (several GB) in place of the one for processors,
# and puts gcc beside it, by which Triton makes what starts its kernels.

FROM python:3.11-slim AS build
ARG TORCH=https://download.pytorch.org/whl/cpu
ARG WEFT_COMMIT=
RUN apt-get update && apt-get install --yes --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
COPY . /source
WORKDIR /source
RUN make wheel WHEEL_PYTHONS=python3.11
RUN python3.11 -m venv /opt/weft \
    && /opt/weft/bin/pip install --no-cache-dir --constraint constraints.txt --index-url "$TORCH" torch \
    && /opt/weft/bin/pip install --no-cache-dir --constraint constraints.txt dist/weft_gnn-*-cp311-cp311-*.whl

FROM python:3.11-slim
RUN groupadd --gid 10001 weft && useradd --uid 10001 --gid weft --create-home --shell /usr/sbin/nologin weft
ARG TORCH=https://download.pytorch.org/whl/cpu
RUN case "$TORCH" in \
    */cpu) ;; \
    *) apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* ;; \
    esac
COPY --from=build /opt/weft /opt/weft
ENV PATH=/opt/weft/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/weft
# The kernels load, and the processor has the instructions that they take; versions of what Weft needs are there.
HEALTHCHECK --interval=5m --timeout=30s CMD ["weft", "--version"]
ENTRYPOINT ["weft"]
CMD ["--help"]
