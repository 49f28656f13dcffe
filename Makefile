# One command each: `make help` lists them. Only python3, a C compiler and make are assumed; everything else
# comes from pip into virtual environments in this folder, which later runs use again.
PYTHON ?= python3
export PYTHON

VENV := .venv-test
PRESETS := futex semaphore asan tsan# CMakePresets.json
SEMAPHORE := $(CURDIR)/build/semaphore-package# the package again, built with RINGBUF_WAIT=semaphore
# What the package is made of. Folders too, whose times change when a file is removed.
SOURCES := pyproject.toml CMakeLists.txt $(shell find src cmake -not -name '__pycache__' -not -name '*.pyc')
ASAN := $(CURDIR)/build/asan-package# and once more, with AddressSanitizer and UBSan
# The tests that wait on a ring, to be passed by either kind of waiting.
RING_TESTS := $(patsubst %,tests/test_%.py,core buffer leases exchange crash fork pickle)
# The tests of what the extension and numpy do with bytes.
BYTES_TESTS := $(patsubst %,tests/test_%.py,core buffer leases frame frame_hostile frame_fuzzed frame_double_fetch frame_refused)
# Much of the time a test waits for processes, so two files at a time take little more than half of it.
SIDE_BY_SIDE := -n 2 --dist loadfile
TIME ?= 60# seconds for each target of fuzz

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help test test-c docs verify test-asan-package soak fuzz memcheck coverage demo demo-torch bench bench-full bench-c lint clean

help:  ## list what there is
	@sed -n 's/^\([a-z-]*\):.*##/\1	/p' Makefile | expand -t 18

test: $(VENV)/installed $(SEMAPHORE)/installed test-c  ## install what is needed, build, and run every test
	@status=0; \
	echo "==> the tests of the ring, over its semaphore build"; \
	PYTHONPATH=$(SEMAPHORE) $(VENV)/bin/python -m pytest $(SIDE_BY_SIDE) $(RING_TESTS) || status=1; \
	echo "==> all tests"; \
	$(VENV)/bin/python -m pytest $(SIDE_BY_SIDE) || status=1; \
	exit $$status

# pytest runs these programs and shows each as a test of its own (tests/test_c.py); here they are only built.
test-c: $(addprefix build-c-,$(PRESETS))  ## build the C library and its test programs in every preset

build-c-%: | $(VENV)/installed
	@echo "==> C library and test programs: $*"
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" && cmake --preset $* --log-level=WARNING && cmake --build --preset $*

verify: $(VENV)/verify  ## show at full length that the ring survives anything (docs/verification.md), or LEVELS="models soak"
	$(VENV)/bin/python scripts/verify $(LEVELS)

MINUTES ?= 2
soak: $(VENV)/installed  ## rings and loaders under random kills, for MINUTES=2, from SEED=random
	$(VENV)/bin/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

fuzz: $(VENV)/verify  ## fuzz attach and frames, TIME=60 seconds each
	PYTHON=$(VENV)/bin/python scripts/fuzz $(TIME)

# The interpreter is not built with a sanitizer, so the runtimes have to be loaded ahead of it; what it never frees is its own.
test-asan-package: $(ASAN)/installed  ## test the Python extension under ASan and UBSan
	test -n "$$(nm -D $(ASAN)/ringbuf/_core*.so | grep __asan_)"
	PYTHONPATH=$(ASAN) PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	$(VENV)/bin/python -m pytest $(BYTES_TESTS)

memcheck: $(VENV)/verify  ## run the C test programs under valgrind
	$(VENV)/bin/python scripts/memcheck

coverage: $(VENV)/verify  ## which branches of the C library no test takes, and the argument for each
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python scripts/coverage

demo: .venv-demo/installed  ## train a classifier on real images through the ring
	.venv-demo/bin/python examples/digits.py

demo-torch: $(VENV)/installed  ## train on Fashion-MNIST with torch's DataLoader and with RingLoader: the same losses
	$(VENV)/bin/python examples/fashion.py

bench: $(VENV)/installed  ## measure against other loaders and queues in ten minutes, and write docs/benchmarks.md
	$(VENV)/bin/python -m benchmarks.py --quick

bench-full: .venv-bench/installed  ## the same with every peer and workload; takes hours
	.venv-bench/bin/python -m benchmarks.py --full

bench-c: $(VENV)/installed  ## measure the ring in C against other queues, as far as they are installed
	$(VENV)/bin/python -m benchmarks.c

docs: $(VENV)/installed  ## build these pages into build/docs, every warning an error
	$(VENV)/bin/python -m sphinx -W --keep-going -n --quiet docs build/docs

lint: .venv-lint/installed  ## check the Python code with ruff
	.venv-lint/bin/ruff check

clean:  ## remove what was built and installed here
	rm -rf build dist .venv-test .venv-bench .venv-demo .venv-lint .pytest_cache .hypothesis .ruff_cache

# pip builds and installs a local folder anew each time, and what it depends on only where that is missing.
$(VENV)/installed: scripts/venv scripts/system_packages tests/constraints.txt $(SOURCES)
	scripts/system_packages
	scripts/venv $(VENV) --constraint tests/constraints.txt '.[test]'
	touch $@

$(SEMAPHORE)/installed: $(VENV)/installed
	rm -rf $(SEMAPHORE)
	scripts/venv $(VENV) --no-deps --target $(SEMAPHORE) --config-settings=cmake.define.RINGBUF_WAIT=semaphore .
	touch $@

$(ASAN)/installed: $(VENV)/installed
	rm -rf $(ASAN)
	scripts/venv $(VENV) --no-deps --target $(ASAN) --config-settings=cmake.define.RINGBUF_SANITIZE=address .
	touch $@

$(VENV)/verify: $(VENV)/installed
	scripts/system_packages verify
	scripts/venv $(VENV) --constraint tests/constraints.txt '.[verify]'
	touch $@

.venv-bench/installed: scripts/venv scripts/system_packages tests/constraints.txt $(SOURCES)
	scripts/system_packages
	scripts/venv .venv-bench --constraint tests/constraints.txt '.[bench-full]' cmake ninja
	touch $@

.venv-demo/installed: scripts/venv scripts/system_packages $(SOURCES)
	scripts/system_packages
	scripts/venv .venv-demo '.[demo]'
	touch $@

.venv-lint/installed: scripts/venv
	scripts/venv .venv-lint ruff
	touch $@
