# Each target makes .venv by itself when it is missing. `make setup ACCEL=cuda12|cuda13|tpu` installs jax for an accelerator.

PYTHON ?= python3
ACCEL ?= cpu
VENV := .venv
RUN := $(VENV)/bin/python

JAX_EXTRA := $(if $(filter cpu,$(ACCEL)),,$(if $(filter cuda12 cuda13 tpu,$(ACCEL)),jax[$(ACCEL)],\
             $(error ACCEL=$(ACCEL): expected cpu, cuda12, cuda13 or tpu)))

.PHONY: setup ready demo test lint bench kill-test

setup: $(VENV)/ready-$(ACCEL)

# The exact versions that the tests ran with.
$(VENV)/ready-$(ACCEL): requirements.txt requirements-dev.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "linrec needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt $(JAX_EXTRA) -c constraints.txt
	@touch $@

# An environment made for an accelerator serves every target.
ready:
	@ls $(VENV)/ready-* >/dev/null 2>&1 || $(MAKE) setup

demo: ready
	$(RUN) -m scripts.demo

test: ready
	$(RUN) -m pytest -n 2 --dist worksteal

lint: ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright --pythonpath $(RUN)

bench: ready
	$(RUN) -m benchmarks.layers
	$(RUN) -m benchmarks.orthogonal

kill-test: ready
	$(RUN) -m scripts.kill_test
