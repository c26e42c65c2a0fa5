# `make demo`, `make test` and `make check` each set up what they need; none changes a tracked file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
CPU_WHEELS := https://download.pytorch.org/whl/cpu

.PHONY: demo test check format bench docs site clean

# A network learns sets, a planner uses it; the page is demo/index.html.
demo: $(DEMO_STAMP)
	$(BIN)/setwise demo

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py
	$(MAKE) --no-print-directory site

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python benchmarks/losses_cpu.py

# Numbers and pictures of the documents, made anew from the records.
docs: $(STAMP)
	$(BIN)/python docs/figures/loss_surfaces.py
	$(BIN)/python docs/figures/kernels.py
	$(BIN)/python docs/figures/results.py

# The documents as pages, in site/. Warnings are errors. The theme speaks of its successor otherwise.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(PIP) --editable '.[dev]'
	touch $@

# A small part of what the tests need, in the same place.
$(DEMO_STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once. PyTorch is most of it; without a GPU this makes it smaller:"
	@echo "    make demo PIP_EXTRA_INDEX_URL=$(CPU_WHEELS)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(PIP) --editable '.[demo]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis site demo
