# Two commands do all the set-up: `make release` and `make test`.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo

# uv installs in seconds; pip serves as well
UV := $(shell command -v uv 2>/dev/null)
ifdef UV
MAKE_VENV := uv venv --quiet --python $(PYTHON) $(VENV)
INSTALL := uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
SHOW := cat
else
MAKE_VENV := $(PYTHON) -m venv $(VENV)
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt
SHOW := awk '/^Collecting/ { printf "."; fflush() } END { print "" }'
endif

.PHONY: release test verify lint clean

release: $(VENV)/.installed
	@test -f $(DEMO)/release.yaml || $(BIN)/dprelease init $(DEMO) --demo clinic
	@$(BIN)/dprelease run --workspace $(DEMO)
	@$(BIN)/dprelease audit --workspace $(DEMO)
	@echo "open the report: $$(ls -d $(DEMO)/releases/*/*/report.html | tail -n 1)"

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

verify: $(VENV)/.installed-dev lint
	$(BIN)/python -m pytest --timeout=3600
	$(BIN)/dprelease mechanisms --audit --thorough
	$(BIN)/python tests/mutants.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("dprelease needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV)$(if $(UV),, (with pip this takes about two minutes))"
	@test -x $(BIN)/python || $(MAKE_VENV)
	@$(INSTALL) --editable . | $(SHOW)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(INSTALL) --editable '.[dev]' | $(SHOW)
	@touch $@

clean:
	rm -rf $(VENV) $(DEMO) .mypy_cache .ruff_cache .hypothesis
