#!/usr/bin/env bash
# Builds the kernels in place (src/weft/_kernels*.so) for work on them; `make test` builds through pip instead.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
PATH=$(dirname "$python"):$PATH
cmake -S . -B build/inplace -G Ninja -DPython_EXECUTABLE="$python" -DWEFT_NATIVE="${WEFT_NATIVE:-ON}" >/dev/null
cmake --build build/inplace
cmake --install build/inplace --prefix src >/dev/null
