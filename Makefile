# Every command sets up what it needs; nothing has to be installed or activated first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: test check demo bench clean

## test: everything that CI runs, cheapest first
test: check
	$(BIN)/pytest

## check: format, lint, types and layers
check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## demo: an embedded relay and the editor; without a terminal, a scripted session of two people
demo: $(STAMP)
	$(BIN)/python -m examples.textual_editor --demo

## bench: walstore beside its peers in one run, as ratios (QUICK=1 for a short one)
bench: $(STAMP)
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.relay $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "walstore needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "Could not make a virtual environment; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]'
	@touch $@
