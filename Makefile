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
INSTALL := uv pip install --quiet --python $(BIN)/python
SHOW := cat
else
MAKE_VENV := $(PYTHON) -m venv $(VENV)
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off
SHOW := awk '/^Collecting/ { printf "."; fflush() } END { print "" }'
endif

# Every file that is installed is a wheel and has its hash in locks/, which are complete: nothing needs resolving
# (older pips fail at it, with hashes and extras), and nothing is built but this project, by the locked backend.
WHEELS := --only-binary :all:
INSTALL_LOCKED := $(INSTALL) --require-hashes --no-deps $(WHEELS) --requirement
INSTALL_PROJECT := $(INSTALL) --no-index --no-deps --no-build-isolation --editable .

unexport PYTHONDONTWRITEBYTECODE  # where it is set, every process would compile all libraries anew

.PHONY: release check test verify lint lock clean

release: $(VENV)/.installed
	@test -f $(DEMO)/release.yaml || $(BIN)/dprelease init $(DEMO) --demo clinic
	@$(BIN)/dprelease run --workspace $(DEMO)
	@$(BIN)/dprelease audit --workspace $(DEMO)
	@echo "open the report: $$(ls -d $(DEMO)/releases/*/*/report.html | tail -n 1)"

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

# what one runs all day: linters, types and unit tests
check: lint
	$(PYTEST) tests/unit -m "not slow" -n 2 --hypothesis-profile=check

# what a release of this software needs; tests of servers wait more than they compute, so a third worker fills the cores
test: $(VENV)/.installed-dev
	$(PYTEST) tests/system tests/statistical tests/unit -m "not slow" -n 3

verify: $(VENV)/.installed-dev lint
	$(PYTEST) -n 2 --hypothesis-profile=verify --timeout=3600
	$(BIN)/dprelease mechanisms --audit --thorough
	cd tests && ../$(BIN)/python -m support.mutants

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml locks/run.txt
	@$(PYTHON) -c 'import sys; sys.exit("dprelease needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV)$(if $(UV),, (with pip this takes about two minutes))"
	@test -x $(BIN)/python || $(MAKE_VENV)
	@$(INSTALL_LOCKED) locks/run.txt | $(SHOW)
	@$(INSTALL_PROJECT) | $(SHOW)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed locks/dev.txt
	@$(INSTALL_LOCKED) locks/dev.txt | $(SHOW)
	@touch $@

# `make lock` follows a change of pyproject.toml; `make lock UPGRADE=--upgrade` takes the newest versions
BUILD_TOOLS := $(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header
LOCK := $(BUILD_TOOLS) | $(COMPILE) pyproject.toml -

lock:
	$(LOCK) $(UPGRADE) --all-extras --output-file locks/dev.txt
	$(LOCK) --constraint locks/dev.txt --output-file locks/run.txt
	$(LOCK) --constraint locks/dev.txt --extra dask --extra s3 --extra postgres --output-file locks/extras.txt
	echo uv | $(COMPILE) - $(UPGRADE) --output-file locks/uv.txt

clean:
	rm -rf $(VENV) $(DEMO) .mypy_cache .ruff_cache .hypothesis
