# Every command sets up what it needs; nothing has to be installed or activated first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LIGHT  := $(VENV)/.installed-light
# Tests wait for processes, disks and clocks: two processors have enough to do for three.
JOBS   ?= 3

# Tests start hundreds of processes: what one has compiled the next ones load.
unexport PYTHONDONTWRITEBYTECODE

# Spark brings its own Java where there is none.
SPARK  := $(if $(or $(JAVA_HOME),$(shell command -v java)),spark,spark-java)

# The inner modules as C, beside a copy of all others: what a wheel built with WALSTORE_COMPILE=1 holds.
COMPILED := .cache/compiled
COMPILE  := 1
# The same C for tests, compiled quickly rather than to be quick.
QUICK    := .cache/quick
HOT      := src/walstore/canon.py $(wildcard src/walstore/crdt/*.py src/walstore/reconcile/*.py)
CORE     := tests/test_compiled.py tests/test_canon.py $(wildcard tests/test_crdt_*.py tests/test_packed_*.py \
            tests/test_reconcile_*.py tests/test_document_laws.py tests/test_document_bases.py)
FAULTS   := tests/test_simulator.py::test_whatever_goes_wrong_all_documents_agree_in_the_end

.PHONY: test check collected compiled demo serve screenshot bench sim mutants torture clean

## test: everything that CI runs, checks first; the core in both forms
test: $(STAMP)
	@$(MAKE) --no-print-directory --jobs $(JOBS) --output-sync=line check collected \
	  compiled COMPILED=$(QUICK) COMPILE=quick
	$(BIN)/pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder
	@if [ -d $(QUICK)/lib ]; then \
	  WALSTORE_EXPECT_COMPILED=1 WALSTORE_EXAMPLES=30 PYTHONPATH=$(QUICK)/lib \
	    $(BIN)/pytest -n $(JOBS) --dist loadgroup $(FAULTS) $(CORE); \
	fi

## compiled: the inner modules as C, in .cache; nothing where there is no C compiler
compiled: $(STAMP)
	@rm -rf $(COMPILED)/lib
	@if command -v $(CC) > /dev/null; then \
	  $(MAKE) --no-print-directory $(COMPILED)/.built && \
	  mkdir -p $(COMPILED)/lib && cp -r src/walstore $(COMPILED)/ext/. $(COMPILED)/lib; \
	else \
	  echo "Nothing is compiled, and the core is tested interpreted only: there is no C compiler ($(CC))."; \
	fi

$(COMPILED)/.built: setup.py $(HOT) | $(STAMP)
	rm -rf $(COMPILED)/ext
	@echo "Compiling the inner modules, once for each change of them: a minute or two …"
	WALSTORE_COMPILE=$(COMPILE) $(BIN)/python setup.py --quiet build_ext --build-lib $(COMPILED)/ext
	@touch $@

## check: format, lint, types and layers
check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What pytest makes of the tests' sources is made once, and not by each of its processes.
collected: $(STAMP)
	@mkdir -p .cache
	@$(BIN)/pytest --collect-only --quiet --quiet > .cache/collected.txt || { cat .cache/collected.txt; exit 1; }

## demo: an embedded relay and the editor; without a terminal, a scripted session of two people
demo: $(LIGHT)
	$(BIN)/python -m examples.textual_editor --demo

## serve: the same in a browser, each window as somebody else (PORT=8000)
serve: $(STAMP)
	$(BIN)/python -m examples.textual_editor --serve $(if $(PORT),--port $(PORT))

## screenshot: take the pictures in docs/ anew
screenshot: $(STAMP)
	$(BIN)/python -m examples.textual_editor --screenshot

## bench: walstore beside its peers in one run, as ratios (QUICK=1 for a short one; TRACE=file for another trace)
bench: compiled
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(TRACE),--trace $(TRACE)) \
	  --json .cache/bench.json --plot .cache/bench.png

## sim: simulated fleets (SEEDS=2000 or 500-999, LEVEL=document or fleet; SEED=17 for one, traced)
sim: $(STAMP)
	$(BIN)/python -m walstore.testing.simulator $(if $(LEVEL),--level $(LEVEL)) \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(WITHOUT),--without $(WITHOUT))

## mutants: put weaknesses of the peer back into a copy of the source: the tests have to notice
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants

## torture: every promise of docs/reliability.md in the size of a release (TORTURE="G1 G9", SCALE=0.01)
torture: compiled
	$(BIN)/python -m tests.torture $(TORTURE) $(if $(SCALE),--scale $(SCALE))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache

# Running it takes less than working on it: no Spark, no linters.
$(LIGHT): pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV), once: a minute or so …"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	@touch $@

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV) with Spark and what tests need, once: a few minutes …"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev,$(SPARK)]'
	@touch $@ $(LIGHT)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "walstore needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "Could not make a virtual environment; on Debian: apt install python3-venv"; exit 1; }
