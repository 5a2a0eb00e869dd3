# fxgrad's commands. Needs Python 3.11 or newer with pip, git and make; everything is installed into .venv, nothing outside.
#
#   make demo    gradients of a transformer block, side by side with PyTorch's    (ARGS="--bisect", ARGS="--size 2,128,256,8", ...)
#   make test    lint, types, the documentation's site, tests                     (WORKERS=4, PYTEST_ARGS="-k softmax")
#   make bench   what it costs, next to NumPy, JAX, PyTorch and others; writes docs/benchmarks   (ARGS="--only math", "--threads 1")
#   make report  every benchmark, experiment and example, the notebooks, REPORT.md, all measured anew (an hour; nothing else should run)
#   make fuzz    random programs, many more than make test runs                   (FUZZ_EXAMPLES=100000)
#   make release  build sdist and wheel into dist/, install the wheel with run-time dependencies only, and use it (2 minutes, needs the package index)
#   make site    the documentation as a site in build/site, readable without a network; warnings are errors
#   make docs    write docs/ops.md and docs/numerics.md again
#   make accuracy   measure the errors of the math functions (15 minutes, a second time 1), write docs/numerics.json and the pages
#   make format  rewrite the code as ruff formats it
#   make clean   remove what was generated; make distclean removes .venv too

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY := .venv/bin/python
WORKERS ?= auto
FUZZ_EXAMPLES ?= 20000
PYTEST := $(PY) -m pytest -n $(WORKERS) --maxprocesses 8
SOURCES := fxgrad tests examples bench docs

.PHONY: demo test lint types site unit bench report release fuzz docs accuracy format clean distclean
.DELETE_ON_ERROR:
# lint, types and tests one after the other also under make -j: their reports are read from top to bottom
.NOTPARALLEL:

# ---- use ---------------------------------------------------------------------------------------------------------------

demo: .venv/.test
	$(PY) examples/transformer_parity.py $(ARGS)

test: lint types site unit

lint: .venv/.test
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)

types: .venv/.test
	$(PY) -m mypy

site: .venv/.test
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict --config-file docs/theme/mkdocs.yml

unit: .venv/.test
	$(PYTEST) $(PYTEST_ARGS)

fuzz: .venv/.test
	FXGRAD_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(PYTEST) -m fuzz $(PYTEST_ARGS)

bench: .venv/.bench
	$(PY) -m pytest -q -m peers tests/test_peers.py
	$(PY) -m bench $(ARGS)

# Everything that is measured, then the pages that quote it (ARGS="--from examples").
report: .venv/.bench .venv/.notebooks
	$(PY) -m bench.everything $(ARGS)

release: .venv/.test
	$(PY) -m tests.release

# The pages are printed; a page that could not be made leaves the old one alone.
docs: .venv/.test
	@set -e; for page in ops numerics numpy; do $(PY) -m fxgrad.docs $$page > docs/$$page.new; mv docs/$$page.new docs/$$page.md; done

# References are kept in build/accuracy, so that a second run only measures.
accuracy: .venv/.test
	$(PY) -m bench.accuracy $(ARGS)
	@$(MAKE) --no-print-directory docs

format: .venv/.test
	$(PY) -m ruff check --fix $(SOURCES)
	$(PY) -m ruff format $(SOURCES)

clean:
	rm -rf build dist docs/*.new .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv

# ---- set-up: done once, and again when pyproject.toml changes ----------------------------------------------------------

.venv/bin/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fxgrad needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	"$(PYTHON)" -m venv .venv

.venv/.test: pyproject.toml | .venv/bin/python
	@echo "Installing fxgrad and its tests' packages into .venv (once; PyTorch is the large one)"
	$(PY) -m pip install --quiet --editable '.[test]'
	@touch $@

.venv/.bench: pyproject.toml | .venv/bin/python
	@echo "Installing fxgrad and what it is compared with into .venv (once)"
	$(PY) -m pip install --quiet --editable '.[test,bench]'
	@touch $@ .venv/.test

.venv/.notebooks: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --editable '.[test,bench,notebooks]'
	@touch $@ .venv/.bench .venv/.test
