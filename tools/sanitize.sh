#!/usr/bin/env bash
# Tests the kernels as a sanitizer sees them, in a copy of the package under build/.
# tools/sanitize.sh address|thread [PYTEST ARGUMENTS]
#   address: AddressSanitizer and UndefinedBehaviorSanitizer; thread: ThreadSanitizer, over kernels and connections in threads
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
export TSAN_OPTIONS=
shift
python=${PYTHON:-$PWD/.venv/bin/python}
PATH=$(dirname "$python"):$PATH
there=$PWD/build/sanitize-$kind
export OMP_NUM_THREADS=1 PYTHONPATH=$PWD/tools/plain:$there/src${PYTHONPATH:+:$PYTHONPATH}
if [ "$kind" = address ]; then
  sanitizers=address,undefined libraries="libasan.so libstdc++.so"
  usual="tests/unit/sampling tests/unit/placements/test_cover.py tests/unit/nn/test_functional.py tests/unit/graph
    tests/unit/partition tests/unit/lab tests/unit/features tests/unit/exchange/test_connections.py
    tests/unit/test_kernel_threads.py"
  # What is freed is kept for a while, so that later uses are seen: there a test of how much is taken says nothing.
  usual="$usual --ignore tests/unit/partition/test_memory.py"
  # Python itself leaks by their account.
  export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
else
  sanitizers=thread libraries=libtsan.so
  usual="tests/unit/exchange/test_connections.py tests/unit/exchange/test_communicator.py
    tests/unit/exchange/test_listener.py tests/unit/sampling tests/unit/placements/test_cover.py
    tests/unit/nn/test_functional.py tests/unit/features tests/unit/graph/test_lists.py tests/unit/partition/test_quality.py
    tests/unit/partition/test_undirected.py tests/unit/partition/test_traffic.py"
  # What torch's and Python's own code copies is theirs, and OpenMP's barriers can't be seen; the locks of all are.
  export TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:log_path=$there/report
fi
rm -f "$there"/report.*
cmake -S . -B "$there" -G Ninja -DPython_EXECUTABLE="$python" -DWEFT_NATIVE=ON "-DWEFT_SANITIZE=$sanitizers" >/dev/null
cmake --build "$there"
rm -rf "$there/src" && mkdir -p "$there/src" && cp -r src/weft "$there/src/" && rm -f "$there"/src/weft/_kernels*.so
cmake --install "$there" --prefix "$there/src" >/dev/null

# Python is not built with sanitizers: so their library must be there first, and where it looks for free addresses.
preload=$(for library in $libraries; do cc -print-file-name="$library"; done | paste -sd ' ')
seen() { LD_PRELOAD=$preload setarch -R "$python" "$@"; }

kernels=$(seen -c 'from weft import _kernels; print(_kernels.__file__)')
[[ $kernels == "$there"/src/* ]] || { echo "other kernels than those built here would be tested: $kernels"; exit 1; }

# A mistake that is made on purpose must be found, or all else proves nothing: two threads fill the same arrays, or a kernel
# is told of more room than there is.
found=$(TSAN_OPTIONS=$TSAN_OPTIONS:log_path=stderr seen - "$kind" 2>&1 <<'PYTHON' || true
import sys
import threading

import numpy as np

from weft import _kernels

wanted, there = 1 << 16, 4 if sys.argv[1] == "address" else 1 << 16
src, dst = (np.lib.stride_tricks.as_strided(np.empty(there, np.int32), (wanted,), (4,)) for _ in range(2))
fill = (1, 0, 1000, 0.57, 0.19, 0.19, np.arange(1000, dtype=np.int32), src, dst, 1)
threads = [threading.Thread(target=lambda: [_kernels.rmat_edges(*fill) for _ in range(20)]) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
PYTHON
)
[[ $found == *Sanitizer:* ]] || { echo "a mistake on purpose was not found: $found"; exit 1; }
# shellcheck disable=SC2086
seen -m pytest -q -n 0 -p no:cacheprovider -m "not slow and not gpu" ${*:-$usual} || { cat "$there"/report.* 2>/dev/null; exit 1; }
