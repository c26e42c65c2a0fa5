# Every target sets up what it needs; `demo`, `report`, the tests and `check` change no tracked file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
CPU_WHEELS := https://download.pytorch.org/whl/cpu

# The version of the Python in .venv, or nothing if it is too old or there is no pip; and what it
# should be, where a PYTHON was asked for.
VERSION := print(*sys.version_info[:2], sep=".")
there := $(shell $(BIN)/python -c 'import pip, sys; sys.version_info < (3, 11) or $(VERSION)' 2>/dev/null)
wanted := $(there)
ifneq ($(origin PYTHON),file)
wanted := $(shell $(PYTHON) -c 'import sys; $(VERSION)' 2>/dev/null)
endif

.PHONY: demo report test test-all test-oldest check check-types format bench docs site dist clean environment

# A network learns sets, a planner uses it; the page is demo/index.html.
demo: $(DEMO_STAMP)
	$(BIN)/setwise demo

# All recorded results beside the paper's; the page is report.html.
report: $(DEMO_STAMP)
	$(BIN)/setwise report

# The first tier, and both; so many processes share the tests. These start many more, each of which
# would compile the library again if bytecode were not kept.
WORKERS ?= 2
WITH_BYTECODE := env -u PYTHONDONTWRITEBYTECODE
PYTEST := $(WITH_BYTECODE) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=20
test: $(STAMP)
	$(PYTEST) -m "not slow"

test-all: $(STAMP)
	$(PYTEST)

# What is promised of the oldest releases, in an environment of their own. With them, Triton's
# interpreter does what NumPy has since deprecated.
OLDEST := .venv-oldest
test-oldest: $(OLDEST)/.installed
	$(WITH_BYTECODE) $(OLDEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" \
	  -W "ignore:Conversion of an array with ndim:DeprecationWarning" \
	  $(addprefix tests/,features kernels losses metrics properties)

$(OLDEST)/.installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --constraint constraints-oldest.txt --editable '.[metrics]' \
	  hypothesis POT psutil pytest pytest-xdist triton
	touch $@

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py
	$(MAKE) --no-print-directory site

# What users of pyright see: a file of theirs, read strictly, and which share of our types is known.
# It brings a Node.js of its own, so it has an environment of its own; `check` reads the file with mypy.
TYPES := .venv-types
# In percent, at least.
KNOWN := 93
check-types: $(STAMP) $(TYPES)/.installed
	$(TYPES)/bin/pyright --project tests/typing --pythonpath $(BIN)/python
	PATH="$(CURDIR)/$(BIN):$$PATH" $(TYPES)/bin/pyright --verifytypes setwise --ignoreexternal \
	  | awk '/completeness score/ { print; known = $$NF + 0 } END { exit known < $(KNOWN) }'

$(TYPES)/.installed: constraints.txt
	$(PYTHON) -m venv --clear $(TYPES)
	$(TYPES)/bin/python -m pip install --quiet --constraint constraints.txt 'pyright[nodejs]'
	touch $@

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python benchmarks/losses_cpu.py

# Numbers and pictures of the documents, made anew from the records.
docs: $(STAMP)
	$(BIN)/python docs/figures/loss_surfaces.py
	$(BIN)/python -m tools.kernels
	$(BIN)/python -m tools.results
	$(BIN)/python -m tools.actions
	$(BIN)/python -m tools.study
	$(BIN)/python -m tools.distributed
	$(BIN)/python -m tools.scaling
	$(BIN)/python -m tools.examples
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.readers write
	$(BIN)/python -m tools.renderers write
	$(BIN)/python docs/figures/plans.py
	$(BIN)/python docs/figures/gallery.py

# The documents as pages, in site/. Warnings are errors. The theme speaks of its successor otherwise.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel and the source of a release, in dist/.
dist: $(STAMP)
	$(BIN)/python -m build

# An environment that will not do is made anew, whatever was installed in it.
ifeq ($(and $(there),$(filter $(there),$(wanted))),)
$(STAMP) $(DEMO_STAMP): environment
endif
environment:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "$(PYTHON): expected Python 3.11 or newer; name one, as in: make demo PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

define install
	@echo "Setting up $(VENV), once. PyTorch is most of it; without a GPU this makes it smaller:"
	@echo "    make $(firstword $(MAKECMDGOALS) demo) PIP_EXTRA_INDEX_URL=$(CPU_WHEELS)"
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --constraint constraints.txt --editable
endef

# The extra dev brings all that demo does.
$(STAMP): pyproject.toml constraints.txt
	$(install) '.[dev]'
	touch $@ $(DEMO_STAMP)

# A small part of what the tests need, in the same place.
$(DEMO_STAMP): pyproject.toml constraints.txt
	$(install) '.[demo]'
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(TYPES) .mypy_cache .ruff_cache .pytest_cache .hypothesis site demo dist report.html
	find src tests tools docs benchmarks examples studies -name __pycache__ -prune -exec rm -rf {} +
