# Every command sets up what it needs; nothing has to be installed or activated first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LIGHT  := $(VENV)/.installed-light
JOBS   ?= 2

# Spark brings its own Java where there is none.
SPARK  := $(if $(or $(JAVA_HOME),$(shell command -v java)),spark,spark-java)

.PHONY: test check demo serve screenshot bench clean

## test: everything that CI runs, cheapest first
test: check
	$(BIN)/pytest -n $(JOBS) --dist loadgroup

## check: format, lint, types and layers
check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## demo: an embedded relay and the editor; without a terminal, a scripted session of two people
demo: $(LIGHT)
	$(BIN)/python -m examples.textual_editor --demo

## serve: the same in a browser, each window as somebody else (PORT=8000)
serve: $(STAMP)
	$(BIN)/python -m examples.textual_editor --serve $(if $(PORT),--port $(PORT))

## screenshot: take the pictures in docs/ anew
screenshot: $(STAMP)
	$(BIN)/python -m examples.textual_editor --screenshot

## bench: walstore beside its peers in one run, as ratios (QUICK=1 for a short one)
bench: $(STAMP)
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.relay $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache

# Running it takes less than working on it: no Spark, no linters.
$(LIGHT): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	@touch $@

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev,$(SPARK)]'
	@touch $@ $(LIGHT)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "walstore needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "Could not make a virtual environment; on Debian: apt install python3-venv"; exit 1; }
