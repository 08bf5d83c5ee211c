# Every target makes the virtual environment and installs what it needs by itself, once.
# Another interpreter: make PYTHON=python3.12 test    Another folder: make VENV=/some/where test

VENV   ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
            $$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
              >/dev/null 2>&1 && echo $$p && break; done)
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SETUP  := setup.cfg setup.py pyproject.toml
PYTEST := $(BIN)/python -m pytest
ALL_CORES := -n auto --dist loadfile --no-loadscope-reorder

# Empty: Python keeps what it compiled. Tests start hundreds of processes, and each would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-hosts test-all check-avx512 check-arm check-cuda gpu-check gpu-test conformance bench bench-kernels bench-models bench-more bench-records bench-tune lint format \
        dist docs clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      tune, build and run SqueezeNet and compare it with ONNX Runtime (about three minutes)"
	@echo "make test      the tests for every day (about a quarter of an hour on two cores)"
	@echo "make test-all  all tests"
	@echo "make check-avx512  runs code for AVX-512 on an emulated CPU (Debian with bochs; half an hour)"
	@echo "make check-arm  runs code for AArch64 in emulated processes (Debian with qemu-user-static; half an hour)"
	@echo "make check-cuda  machine code of all GPU templates for all architectures; needs no GPU (an hour or two)"
	@echo "make gpu-check  correctness and speed of GPU kernels on the GPU that is here (nine minutes)"
	@echo "make gpu-test  the tests that use an emulated GPU, on the GPU that is here (some minutes)"
	@echo "make conformance  the onnx package's own cases, as a user would run them (six minutes)"
	@echo "make bench     the performance tables; make bench-kernels, make bench-models, make bench-more: against all peers"
	@echo "make bench-tune  tuning: trials a second, a network's time over ten minutes of tuning; ARGS='--minutes 1', '--only graph'"
	@echo "make lint      ruff and mypy"
	@echo "make format    lays the code out as make lint wants it"
	@echo "make docs      the documentation as a site, in site/"
	@echo "make dist      wheel and sdist, tried in a clean environment"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.14 with venv found; give one: make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra: installed again only when the packaging files change.
$(VENV)/.installed-%: $(SETUP) | $(BIN)/python
	@echo "installing autosched[$*] into $(VENV) ..."
	$(PIP) --editable ".[$*]"
	@touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/python -m examples.demo

# Machines that this one is taken for by the tests marked `host`: CPU/cores/caches. Code is run where the CPU has it.
HOSTS := x86-64-v2/1/32K,256K,8M x86-64-v3/2/32K,512K,32M x86-64-v4/64/48K,2M,64M

# First what depends on the machine, as other machines at once; what looks at times, one at a time; then the rest on all
# cores. (5: ARGS choose none of that part.)
test: $(VENV)/.installed-test
	$(if $(ARGS),,@$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-hosts)
	$(PYTEST) -m "alone and not slow and not gpu" $(ARGS) || test $$? = 5
	$(PYTEST) $(ALL_CORES) -m "not alone and not slow and not gpu" $(ARGS) || test $$? = 5

test-hosts: $(addprefix test-as/,$(HOSTS))

test-as/%: $(VENV)/.installed-test
	@set -- $(subst /, ,$*); echo "taken for $$1 with $$2 cores and caches of $$3:"; \
	  AUTOSCHED_HOST_CPU=$$1 AUTOSCHED_HOST_CORES=$$2 AUTOSCHED_HOST_CACHES=$$3 $(PYTEST) \
	    -m "host and not slow and not gpu" $$(grep -rl --include='test_*.py' 'mark\.host' tests)

test-all: $(VENV)/.installed-test
	$(PYTEST) -m alone $(ARGS) || test $$? = 5
	$(PYTEST) $(ALL_CORES) -m "not alone" $(ARGS) || test $$? = 5

check-avx512: $(VENV)/.installed-test
	$(BIN)/python -m tests.emulated --save $(ARGS)

check-arm: $(VENV)/.installed-test
	$(BIN)/python -m tests.emulated --target "llvm -mtriple=aarch64-linux-gnu" --save $(ARGS)

check-cuda: $(VENV)/.installed-test
	$(BIN)/python -m tests.check_cuda --save $(ARGS)

# The tests that run kernels on the emulator, on the GPU that is here.
gpu-test: $(VENV)/.installed-test
	$(PYTEST) -p tests.on_gpu $(ALL_CORES) -m "not emulated" tests/templates/cuda tests/codegen/cuda \
	  tests/codegen/test_random_gpu.py tests/runtime/cuda tests/te/test_gpu.py tests/own/gpu tests/driver/build $(ARGS)

gpu-check: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.gpu_check $(ARGS)

conformance: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.conformance $(ARGS)

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks $(ARGS)

bench-kernels: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.kernels --threads 1,2 $(ARGS)

bench-more: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.more_models $(ARGS)

bench-models: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.networks --threads 1,2 $(ARGS)

bench-tune: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.tuning $(ARGS)

bench-records: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.record_speed $(ARGS)

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: $(VENV)/.installed-dist
	rm -rf build dist
	$(BIN)/python -m build $(if $(wildcard $(BIN)/uv),--installer uv) --outdir dist .
	$(BIN)/python .ci/try_dist.py dist

docs: $(VENV)/.installed-docs
	$(BIN)/python -m mkdocs build --strict --quiet

clean:
	rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
