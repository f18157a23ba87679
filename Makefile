# make demo: set up and train a private model.  make test: set up and run all checks and tests.
# make docs: build the documentation site in build/site.  make tutorials: execute the tutorials and write their outputs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test install lint docs tutorials peers wheel clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; torch is a large download)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

demo: install
	$(BIN)/laconic run examples/digits.toml

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: install lint
	$(BIN)/python -m pytest -n 2

# Strict: a link that leads nowhere is an error. Open build/site/index.html; no server and no network is needed.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m tools.site build/site

tutorials: install
	$(BIN)/python -m tools.tutorials

peers: install
	$(BIN)/python -m benchmarks.peers.setup

# For other hosts; the wheel's extras are installed with it: pip install 'dist/laconic_fl-….whl[flower]'.
wheel: | $(BIN)/pip
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist
