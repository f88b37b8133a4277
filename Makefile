# Each target makes .venv by itself when it is missing. `make setup ACCEL=cuda12|cuda13|tpu` installs jax for an accelerator.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

# What .venv was made for last, if there is one, serves every target.
ACCEL ?= $(or $(patsubst $(VENV)/ready-%,%,$(firstword $(wildcard $(VENV)/ready-*))),cpu)
READY := $(VENV)/ready-$(ACCEL)

JAX_EXTRA := $(if $(filter cpu,$(ACCEL)),,$(if $(filter cuda12 cuda13 tpu,$(ACCEL)),jax[$(ACCEL)],\
             $(error ACCEL=$(ACCEL): expected cpu, cuda12, cuda13 or tpu)))

.PHONY: setup demo test test-all lint bench faults

setup: $(READY)

# The exact versions that the tests ran with. Python compiles the few modules that are used when they are.
$(READY): requirements.txt requirements-dev.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "linrec needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(if $(filter-out $(READY),$(wildcard $(VENV)/ready-*)),--clear) $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-dev.txt $(JAX_EXTRA) -c constraints.txt
	@rm -f $(VENV)/ready-*
	@touch $@

demo: $(READY)
	$(RUN) -m scripts.demo

test: $(READY)
	$(RUN) -m pytest -n 2 --dist worksteal

test-all: $(READY)
	LINREC_TEST_ALL=1 $(RUN) -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright --pythonpath $(RUN)

bench: $(READY)
	$(RUN) -m benchmarks

faults: $(READY)
	$(RUN) -m scripts.kill_test
	$(RUN) -m scripts.soak
	LINREC_FAULTS=1 LINREC_TEST_ALL=1 $(RUN) -m pytest -n 2 --dist worksteal tests/test_fuzz_*.py tests/test_honest_*.py
