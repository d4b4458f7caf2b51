# Two commands do everything on a fresh machine (Python 3.11+, make): `make run` and `make test`.
PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# What a user needs, and what a developer needs on top of it, in one environment.
INSTALLED := $(VENV)/.installed
DEVELOPED := $(VENV)/.developed
COMPILE = $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --quiet
STOCK ?= $(HOME)/.cache/hermes-stock-homes
# Many tests wait for processes: five workers keep two cores busy.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || sysctl -n hw.ncpu); echo $$((n * 5 / 2)))
PARALLEL = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: run install develop test quick matrix suite postgres check lint types fmt docs bench stress slow lock clean

run: install
	@$(BIN)/hermes chat

install: $(INSTALLED)

develop: $(DEVELOPED)

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV), this first time only: about 315 MB on the disk, about a minute" >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python scripts/install.py requirements.lock .
	@touch $(INSTALLED)

$(DEVELOPED): $(INSTALLED) requirements-dev.lock
	@$(BIN)/python scripts/install.py requirements-dev.lock
	@touch $(DEVELOPED)

# A few tests that failed run once more, alone, and are printed as flaky (scripts/rerun_failed.py).
# Types take one core for the better part of a minute: they are checked beside the tests, and told of after them.
test: lint
	@$(MAKE) --no-print-directory types > $(VENV)/types.log 2>&1 & types=$$!; \
	echo "$(PARALLEL)"; HERMES_FAILED_TESTS=$(VENV)/failed.json $(PARALLEL); suite=$$?; \
	[ $$suite -ne 1 ] || { $(BIN)/python -m scripts.rerun_failed $(VENV)/failed.json; suite=$$?; }; \
	wait $$types; types=$$?; cat $(VENV)/types.log; \
	exit $$((suite || types))

suite: develop
	$(PARALLEL)

# The suite on every Python that is promised, each in a folder of its own.
matrix:
	@for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1; \
		echo "== $$python ($$version)" >&2; \
		$(MAKE) --no-print-directory suite PYTHON=$$python VENV=.venv-$$version || exit 1; \
	done

quick: develop
	$(PARALLEL) -m 'not processes and not slow and not stress'

check: lint types

lint: develop
	$(BIN)/ruff format --check src tests bench scripts
	$(BIN)/ruff check src tests bench scripts

types: develop
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: develop
	$(BIN)/ruff format src tests bench scripts
	$(BIN)/ruff check --fix src tests bench scripts

docs: develop
	$(BIN)/python -m scripts.write_reference
	$(BIN)/python -m scripts.write_command_tree
	$(BIN)/python -m scripts.write_honcho_reference
	$(BIN)/python -m scripts.draw_packages

bench: develop
	$(BIN)/python -m bench

stress: develop
	HERMES_STRESS=1 $(BIN)/python -m pytest -m stress --timeout 3600
	$(BIN)/python -m scripts.stock_homes make $(STOCK)
	$(BIN)/python -m scripts.stock_homes check $(STOCK)
	$(BIN)/python -m scripts.stock_homes together $(STOCK)

# The memory server's tests on PostgreSQL, with processes and the database killed at full length.
postgres: develop
	HERMES_POSTGRES=1 $(PARALLEL) tests/memory_server -k postgres
	HERMES_STRESS=1 $(BIN)/python -m pytest tests/memory_server/test_postgres_processes.py --timeout 3600

slow: develop
	$(BIN)/python -m scripts.real_model fetch
	HERMES_SLOW=1 $(BIN)/python -m pytest -m slow

lock: develop
	$(COMPILE) --group build --output-file requirements.lock
	$(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock

clean:
	rm -rf $(VENV)
