# Every target sets itself up in .venv; a bare Python >= 3.11 is all it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test test-programs test-all test-slow test-reference test-slurm lint format
.PHONY: constraints bench gpu aot study

help:
	@echo "make setup           install into .venv, versions from constraints.txt"
	@echo "make demo            four small models, their curves and a page, in minutes"
	@echo "make test            units and a kill: minutes"
	@echo "make test-programs   the other programs, as their users start them"
	@echo "make test-slow       the tests marked slow"
	@echo "make test-all        all three, and which lines they reach"
	@echo "make test-slurm      a sweep through a real queue: root, and Debian's slurm-wlm and munge"
	@echo "make test-reference  against transformers and CPU torch, installed into .venv-reference"
	@echo "make study           every table of the study is made from its rows"
	@echo "make bench           ratios against peers, installed into .venv-bench; OUT=DIR keeps them"
	@echo "make aot             compiles for an H100 and a TPU v5e without one; plugins in .venv-aot, 4.5 GB"
	@echo "make gpu             checks and times a GPU; GPU=dry: tiny sizes on a CPU; OUT=DIR"
	@echo "make lint            ruff and pyright"
	@echo "make format          let ruff rewrite"
	@echo "make constraints     renew constraints.txt (needs uv)"

setup: .venv/dev

.venv/lab: SIZE := about 1.3 GB: jax, flax, optax, orbax, datasets, wandb, matplotlib and what they need
.venv/dev: SIZE := 1.6 GB: the laboratory, and ruff, pyright and pytest
.venv/lab .venv/dev: .venv/%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "posenc-jax needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "installing into .venv, $(SIZE)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	@touch $@

# The demo needs no tools of development; where they are installed, it needs nothing more.
demo: $(if $(wildcard .venv/dev),.venv/dev,.venv/lab)
	$(BIN)/python scripts/sweep.py --config=configs/sweeps/demo.py --workdir=runs/demo --workers=3
	$(BIN)/python scripts/report.py runs/demo --out=report/demo

# Of the programs, what every change is tried by.
PROGRAMS := tests/programs/test_kills.py::test_killed_at_random_it_ends_the_same

test: setup
	$(BIN)/python -m pytest $(PROGRAMS) tests/unit

test-programs: setup
	$(BIN)/python -m pytest tests/programs $(PROGRAMS:%=--deselect=%)

test-slow: setup
	$(BIN)/python -m pytest -m slow

test-all: setup
	$(BIN)/python -m pytest -m 'not reference and not slurm and not aot' \
		--cov=posenc_jax --cov=models --cov-report=term

test-slurm: setup
	@command -v slurmctld > /dev/null || test -x /usr/sbin/slurmctld || \
		{ echo "apt-get install slurm-wlm munge, as root, and again"; exit 1; }
	$(BIN)/python -m pytest -m slurm -n 0

test-reference: setup
	$(BIN)/python -m pytest -m reference

study: setup
	$(BIN)/python -m pytest study

OUT ?=
KEPT := $(addprefix --out=,$(OUT))

bench: setup
	$(BIN)/python -m benchmarks.attention $(KEPT)
	$(BIN)/python -m benchmarks.train_step $(KEPT)
	$(BIN)/python -m benchmarks.real $(KEPT)
	$(BIN)/python -m benchmarks.memory $(KEPT)
	$(BIN)/python -m benchmarks.decode $(KEPT)
	$(BIN)/python -m benchmarks.schemes $(KEPT)
	$(BIN)/python -m benchmarks.tuning $(KEPT)
	$(BIN)/python -m benchmarks.evaluation
	$(BIN)/python -m benchmarks.start

# The plugins stand beside .venv, whose programs would otherwise look for a GPU.
.venv-aot/done: constraints.txt
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade --target .venv-aot \
		--constraint constraints.txt libtpu 'jax-cuda13-plugin[with-cuda]'
	@touch $@

aot: setup .venv-aot/done
	JAX_PLATFORMS=cpu XLA_FLAGS= PYTHONPATH=.venv-aot $(BIN)/python -m pytest -m aot -n 1 tests/compiled

# On a bare machine whose own Python has jax, nothing is set up; elsewhere .venv is taken.
GPU ?=
HAS_JAX = $(PYTHON) -c 'import importlib.util as u, sys; sys.exit(u.find_spec("jax") is None)'

gpu:
	@if $(HAS_JAX); then python=$(PYTHON); else $(MAKE) --no-print-directory setup && python=$(BIN)/python; fi && \
		$$python -m study.gpu $(addprefix --,$(GPU)) $(KEPT)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

constraints:
	@echo "# Every version, for Python 3.11 and newer. Renew: make constraints" > constraints.txt
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --upgrade \
		--no-emit-index-url --no-annotate --no-header pyproject.toml >> constraints.txt
