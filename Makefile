# make demo: set up and train a private model.  make test: set up and run all checks and tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test install lint peers wheel clean

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

peers: install
	$(BIN)/python -m benchmarks.peers.setup

# For other hosts; the wheel's extras are installed with it: pip install 'dist/laconic_fl-….whl[flower]'.
wheel: | $(BIN)/pip
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist
