#!/usr/bin/env bash
# Builds the kernels in place (src/weft/_kernels*.so) for work on them; `make test` builds through pip instead.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$(test -x .venv/bin/python && echo .venv/bin/python || echo /usr/bin/env python3)}
cmake -S . -B build/inplace -G Ninja -DPython_EXECUTABLE="$(command -v "$python")" -DWEFT_NATIVE="${WEFT_NATIVE:-ON}" >/dev/null
cmake --build build/inplace
cmake --install build/inplace --prefix src >/dev/null
