#!/usr/bin/env bash
# Builds the kernels in place (src/weft/_kernels*.so) for work on them; `make test` builds through pip instead. Where Weft is
# installed for editing, as `make` does it, the kernels there are replaced as well: it would import no others.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
PATH=$(dirname "$python"):$PATH
cmake -S . -B build/inplace -G Ninja -DPython_EXECUTABLE="$python" -DWEFT_NATIVE="${WEFT_NATIVE:-ON}" >/dev/null
cmake --build build/inplace
cmake --install build/inplace --prefix src >/dev/null
installed=$(PYTHONPATH='' "$python" - "$PWD/src/" 2>/dev/null <<'PYTHON' || true
import sys

import weft
from weft import _kernels

if weft.__file__.startswith(sys.argv[1]) and not _kernels.__file__.startswith(sys.argv[1]):
    print(_kernels.__file__)
PYTHON
)
if [ -n "$installed" ] && [ "${WEFT_NATIVE:-ON}" = ON ]; then
    install -m 755 build/inplace/_kernels*.so "$installed"
elif [ -n "$installed" ]; then
    cmake --install build/inplace --prefix "$(dirname "$(dirname "$installed")")" >/dev/null
fi
