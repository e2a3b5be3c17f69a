# `make train` and `make test` work from a bare clone on Linux, with Python 3.11 or later and a C++ compiler; each installs what
# it needs into .venv.
PYTHON ?= python3
BIN := .venv/bin
nothing :=
# As an address, in which spaces are %20: pip takes a path with one for two
export PIP_CONSTRAINT := file://$(subst $(nothing) ,%20,$(CURDIR))/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PAPER ?= apt gsplit adagl leapgnn neutrontp
CHECK := import sys; sys.version_info >= (3, 11) and sys.platform == "linux" or sys.exit("Weft needs Linux and Python 3.11 or \
later; this is %s, and %s is %s. Name another by make PYTHON=python3.11 ..." % (sys.platform, sys.executable, sys.version.split()[0]))
KERNELS := CMakeLists.txt pyproject.toml constraints.txt $(wildcard kernels/*)
# One wheel is for 3.11, and one for 3.12 and later: make wheel WHEEL_PYTHONS="/path/to/python3.11 /path/to/python3.12"
WHEEL_PYTHONS ?= $(PYTHON) python3.12

.PHONY: help train test test-slow test-ray test-slurm test-s3 gpu fuzz faults soak sanitize wheel test-wheel lint format bench papers clean

help:  ## What can be made here
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

train: .venv/installed  ## Train on two graphs: cora (real, embedded) whole, a generated one on two workers
	$(BIN)/weft import cora runs/first/cora --overwrite
	$(BIN)/weft train runs/first/cora --config examples/cora.toml --out runs/first/cora-model
	$(BIN)/weft generate communities runs/first/communities --vertices 60000 --edges 1200000 --seed 1 --overwrite
	$(BIN)/weft partition runs/first/communities runs/first/parts --parts 2 --overwrite
	$(BIN)/weft probe --workers 2 --out runs/first/cluster.toml
	$(BIN)/weft train runs/first/parts --workers 2 --cluster runs/first/cluster.toml --config examples/communities.toml --out runs/first/communities-model

test: .venv/installed  ## Run the tests (minutes)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not gpu" --ignore tests/cluster --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 40 --durations-min 2
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=2 $(BIN)/python -m pytest -m "not slow and not gpu" tests/cluster --durations 20 --durations-min 2

test-slow: .venv/installed  ## Run the slow tests as well
	OMP_NUM_THREADS=1 WEFT_FUZZ_CASES=300 $(BIN)/python -m pytest -m "not gpu" --timeout 3600 --ignore tests/cluster --numprocesses auto --dist loadfile --no-loadscope-reorder
	OMP_NUM_THREADS=2 $(BIN)/python -m pytest -m "not gpu" --timeout 3600 tests/cluster

test-ray: .venv/installed  ## Test training on Ray, with nodes on this machine (minutes; in namespaces where it may)
	$(BIN)/python -m pip install --quiet --editable '.[ray]' --config-settings=cmake.define.WEFT_NATIVE=ON
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/ray --timeout 600

test-slurm: .venv/installed  ## Test jobs on four nodes of Slurm on this machine (minutes; needs root, and apt install slurmctld slurmd slurm-client munge)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow tests/slurm --timeout 900

test-s3: .venv/installed  ## Test graphs and tables in a store that speaks S3 on this machine (moto's; installs it, and s3fs)
	$(BIN)/python -m pip install --quiet 'moto[server]' s3fs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/workers/test_from_s3.py

gpu: .venv/installed  ## Test what runs on a CUDA device, exactly as on the CPU (skipped without one)
	TRITON_INTERPRET=0 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --timeout 3600 tests/gpu

fuzz: .venv/installed  ## Damage graphs, tables, settings and checkpoints for an hour: nothing may crash, or be taken as sound
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/rounds.py --seconds 3600 --seed $$(date +%s)
	OMP_NUM_THREADS=1 WEFT_FUZZ_CASES=5000 $(BIN)/python -m pytest --timeout 3600 tests/fuzz/test_fuzzed_inputs.py

faults: .venv/installed  ## Run each fault in each stage of a run (hours, in pieces; needs root), and print the table
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults/run.py --again

soak: .venv/installed  ## Train for an hour on four workers, changing plans: what each holds must stay flat
	OMP_NUM_THREADS=1 $(BIN)/python tests/soak/soaking.py --seconds 3600

sanitize: .venv/installed  ## Test the kernels, built with AddressSanitizer and UndefinedBehaviorSanitizer, then with ThreadSanitizer
	PYTHON="$(CURDIR)/$(BIN)/python" tools/sanitize.sh address
	PYTHON="$(CURDIR)/$(BIN)/python" tools/sanitize.sh thread

wheel:  ## Build wheels into dist/ (many minutes), and check them
	tools/wheel.sh $(WHEEL_PYTHONS)

test-wheel: .venv/installed  ## Test the wheels in dist/, each in a fresh environment without a compiler
	WEFT_WHEELS=dist WEFT_WHEEL_PYTHONS="$(WHEEL_PYTHONS)" $(BIN)/python -m pytest tests/wheel

lint: .venv/installed  ## Check style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed  ## Put the code into the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed  ## Time the kernels, and imports; the peers' comparisons are in benchmarks/README.md
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/import_speed.py

papers: .venv/installed  ## A paper's tables and figures, beside Weft's: PAPER=apt (up to half an hour; QUICK=1: under 3 minutes)
	OMP_NUM_THREADS=1 PYTHONPATH=benchmarks $(BIN)/python -m papers $(PAPER) $(if $(QUICK),--quick)

clean:  ## Remove .venv, build and runs (wheels in dist and benchmarks' graphs in data stay)
	rm -rf .venv build runs

# Kernels are compiled for this machine; Python files are used in place, so only a change of the kernels installs again.
.venv/installed: $(KERNELS)
	@$(BIN)/python -c '$(CHECK)' 2>/dev/null || { $(PYTHON) -c '$(CHECK)' && $(PYTHON) -m venv --clear .venv; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --config-settings=cmake.define.WEFT_NATIVE=ON
	@touch $@
