#!/usr/bin/env bash
# Tests the kernels as AddressSanitizer and UndefinedBehaviorSanitizer see them, in a copy of the package under build/.
# tools/sanitize.sh [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
PATH=$(dirname "$python"):$PATH
there=$PWD/build/sanitize
tests=${*:-"tests/unit/sampling tests/unit/placements/test_cover.py tests/unit/nn/test_functional.py tests/unit/graph
  tests/unit/partition tests/unit/lab tests/unit/features tests/unit/exchange/test_connections.py
  tests/unit/test_kernel_threads.py"}
cmake -S . -B "$there" -G Ninja -DPython_EXECUTABLE="$python" -DWEFT_NATIVE=ON -DWEFT_SANITIZE=ON >/dev/null
cmake --build "$there"
rm -rf "$there/src" && mkdir -p "$there/src" && cp -r src/weft "$there/src/" && rm -f "$there"/src/weft/_kernels*.so
cmake --install "$there" --prefix "$there/src" >/dev/null
# Python itself leaks by these sanitizers' account, and is not built with them: so the library must be there first.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
export PYTHONPATH=$there/src PYTHONMALLOC=malloc
library="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libstdc++.so)"
# shellcheck disable=SC2086
LD_PRELOAD="$library" "$python" -m pytest -q -p no:cacheprovider -m "not slow and not gpu" $tests
