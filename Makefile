# One command each: `make help` lists them. Only python3, a C compiler and make are assumed; everything else
# comes from pip into virtual environments in this folder, which later runs use again.
PYTHON ?= python3
export PYTHON

VENV := .venv-test
PRESETS := futex semaphore asan tsan# CMakePresets.json
SEMAPHORE := $(CURDIR)/build/semaphore-package# the package again, built with RINGBUF_WAIT=semaphore
# What the package is made of. Folders too, whose times change when a file is removed.
SOURCES := pyproject.toml CMakeLists.txt $(shell find src -not -name '__pycache__' -not -name '*.pyc')
# The tests that wait on a ring, to be passed by either kind of waiting.
RING_TESTS := $(patsubst %,tests/test_%.py,core buffer leases exchange crash fork pickle)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help test test-c demo bench lint clean

help:  ## list what there is
	@sed -n 's/^\([a-z-]*\):.*##/\1	/p' Makefile | expand -t 10

test: $(VENV)/installed $(SEMAPHORE)/installed test-c  ## install what is needed, build, and run every test
	@status=0; \
	echo "==> the tests of the ring, over its semaphore build"; \
	PYTHONPATH=$(SEMAPHORE) $(VENV)/bin/python -m pytest $(RING_TESTS) || status=1; \
	echo "==> all tests"; \
	$(VENV)/bin/python -m pytest || status=1; \
	exit $$status

# pytest runs these programs and shows each as a test of its own (tests/test_c.py); here they are only built.
test-c: $(addprefix build-c-,$(PRESETS))  ## build the C library and its test programs in every preset

build-c-%: | $(VENV)/installed
	@echo "==> C library and test programs: $*"
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" && cmake --preset $* --log-level=WARNING && cmake --build --preset $*

demo: .venv-demo/installed  ## train a classifier on real images through the ring
	.venv-demo/bin/python examples/digits.py

bench: $(VENV)/installed  ## measure RingLoader against torch's DataLoader
	$(VENV)/bin/python -m benchmarks.py.loader

lint: .venv-lint/installed  ## check the Python code with ruff
	.venv-lint/bin/ruff check

clean:  ## remove what was built and installed here
	rm -rf build dist .venv-test .venv-demo .venv-lint .pytest_cache .hypothesis .ruff_cache

# pip builds and installs a local folder anew each time, and what it depends on only where that is missing.
$(VENV)/installed: scripts/venv scripts/system_packages tests/constraints.txt $(SOURCES)
	scripts/system_packages
	scripts/venv $(VENV) --constraint tests/constraints.txt '.[test]'
	touch $@

$(SEMAPHORE)/installed: $(VENV)/installed
	rm -rf $(SEMAPHORE)
	scripts/venv $(VENV) --no-deps --target $(SEMAPHORE) --config-settings=cmake.define.RINGBUF_WAIT=semaphore .
	touch $@

.venv-demo/installed: scripts/venv scripts/system_packages $(SOURCES)
	scripts/system_packages
	scripts/venv .venv-demo '.[demo]'
	touch $@

.venv-lint/installed: scripts/venv
	scripts/venv .venv-lint ruff
	touch $@
