# Everything runs in .venv, which is built on first use from pyproject.toml and constraints.txt.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-phantom test lint types clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: .venv/.ready  ## create .venv with the pinned dependencies (Python >= 3.11; PYTHON=... chooses one)

demo: .venv/.ready  ## compare positional encodings on a real CT (downloads 38 MB once) and write report.html
	@$(BIN)/python scripts/compare.py experiment=demo $(ARGS)

demo-phantom: .venv/.ready  ## the same comparison on an analytic phantom, nothing to download
	@$(BIN)/python scripts/compare.py experiment=demo_phantom $(ARGS)

test: .venv/.ready  ## run the tests (ARGS=tests/geometry runs a part)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 $(ARGS)

lint: .venv/.ready  ## check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv/.ready  ## check types
	@$(BIN)/mypy

clean:  ## remove .venv and caches; results in outputs/ stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "'$(PYTHON)' was not found: install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
	  sys.exit(None if sys.version_info >= (3, 11) else "medattn needs Python 3.11 or newer, $(PYTHON) is " + v + "; name another: make PYTHON=/path/to/python3")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks the venv module: install it (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Setting up .venv with the versions in constraints.txt; the first time this downloads PyTorch and takes minutes."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dicom,studies,dev]'
	@touch $@
	@echo ".venv is ready."
