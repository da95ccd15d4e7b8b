# Every target sets up what it needs. Build folders are in build/.
PYTHON := .venv/bin/python
DEV := build/dev
SHELL := bash
SOAK_MINUTES ?= 10
export OP
CUDA_FLAG = $(if $(TILEWIRE_CUDA),-DTILEWIRE_CUDA=$(TILEWIRE_CUDA))
unexport TILEWIRE_CUDA # the library would take it for an option of its own

.DEFAULT_GOAL := help
.PHONY: help setup configure build python demo test lint bench gpu-test gpu-soak soak asan asan-rdma tsan format clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: ## Install what is missing (Debian or Ubuntu packages, Python packages into .venv)
	@scripts/setup

configure: setup
	@cmake --preset dev $(CUDA_FLAG) -DTILEWIRE_BUILD_PYTHON=ON -DPython_EXECUTABLE="$(CURDIR)/$(PYTHON)" --log-level=WARNING >/dev/null

build: configure ## Build library, tests, benchmarks and the Python package
	@cmake --build $(DEV)
	@scripts/install_python

python: configure
	@cmake --build $(DEV) --target python_parts
	@scripts/install_python

demo: python ## Run every operation on an embedded cluster of 2 nodes x 2 ranks and check every element
	@.venv/bin/tilewire demo

test: build ## Run all tests but the soaks; those in Python too when others have failed
	@scripts/setup --guest
	@failed=; set -o pipefail; \
	ctest --preset dev | sed -u 's/^ *Start *[0-9]*: \(rdma_guest.*\)/\1 begins: it boots a guest and takes minutes/; /^ *Start *[0-9]*: /d' || failed="the C++ tests"; \
	$(PYTHON) -m pytest || failed="$${failed:+$$failed and }the Python tests"; \
	[ -z "$$failed" ] || { echo "make test: failed: $$failed; what is wrong is said above"; exit 1; }

lint: configure ## Check layers, headers, rules, format, clang-tidy, ruff and mypy
	@scripts/setup --lint
	@scripts/lint

format: setup ## Lay out the code as lint wants it
	@git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.cu' '*.cuh' | xargs .venv/bin/clang-format -i
	@.venv/bin/ruff format --quiet
	@.venv/bin/ruff check --quiet --fix

bench: configure ## Run the benchmarks (OP= for one operation), each with the bare mechanism beside it; those of a GPU where one is
	@cmake --build $(DEV) --target benches
	@scripts/run_benches $(DEV) $$([ -z "$(OP)" ] || echo "--op $(OP)")
	@if nvidia-smi >/dev/null 2>&1; then cmake --build $(DEV) --target gpu_programs --target python_parts && scripts/run_gpu bench $(DEV); fi

gpu-test: configure ## Run the tests that need a GPU (OP= for one operation) and keep what they found in docs/results
	@cmake --build $(DEV) --target gpu_programs --target python_parts
	@scripts/run_gpu test $(DEV)

gpu-soak: configure ## Run ten thousand calls of all operations on GPU ranks, on one communicator each
	@cmake --build $(DEV) --target gpu_programs
	@scripts/run_gpu soak $(DEV)

soak: configure ## Run the long tests, SOAK_MINUTES (10) for each that runs by time
	@cmake --build $(DEV) --target soak_test
	@SOAK_MINUTES="$(SOAK_MINUTES)" ctest --preset soak --verbose

asan: setup ## Build and run the C++ tests with AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/sanitize asan

asan-rdma: setup ## The same of all tests over soft-RoCE, in the guest (a quarter of an hour)
	@scripts/sanitize asan --rdma

tsan: setup ## Build and run the C++ tests with ThreadSanitizer
	@scripts/sanitize tsan

clean: ## Remove everything that was built; .venv stays
	@rm -rf build dist out
