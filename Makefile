# Antiphon. `make serve` and `make test` install whatever they need; everything else is for developers.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WEB := gateway/web
PORT ?= 8000
MODEL ?=

.DEFAULT_GOAL := help
.PHONY: help serve test check bench web docs lock clean machine

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

serve: $(VENV)/.serve $(WEB)/dist/index.html ## Chat page and API on one machine (PORT, MODEL, ANTIPHON_HOME)
	@exec $(BIN)/antiphon serve --port $(PORT) $(if $(MODEL),--model "$(MODEL)")

test: $(VENV)/.dev $(WEB)/dist/index.html machine tests/clients/node_modules/.installed ## Every test: unit, contract, integration, e2e, clients
	npm --prefix $(WEB) run test
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.dev $(WEB)/node_modules/.installed ## Lint, types, rules of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	npm --prefix $(WEB) run check

bench: $(VENV)/.dev $(WEB)/dist/index.html machine ## The figures we claim, as ratios within one run (RIVALS=1 adds others)
	$(BIN)/python -m benchmarks $(ARGS)

web: $(WEB)/dist/index.html ## Build the chat page

docs: $(VENV)/.dev ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

lock: $(BIN)/uv ## Lock the requirements again, with hashes
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-annotate --extra embedded -o requirements/serve.txt pyproject.toml
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-annotate --extra embedded --group dev --group docs \
		-c requirements/serve.txt -o requirements/dev.txt pyproject.toml

clean: ## Remove what was built here (models and data folders stay)
	rm -rf $(VENV) $(WEB)/node_modules $(WEB)/dist tests/clients/node_modules site

machine: ## Install what tests need from the system: Chromium, PostgreSQL, Redis
	@deploy/machine.sh

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Antiphon needs Python 3.11 or newer; set PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv

$(VENV)/.serve: $(BIN)/uv requirements/serve.txt pyproject.toml
	@echo "Installing the Python packages …"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/serve.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.serve requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@touch $@

$(WEB)/node_modules/.installed: $(WEB)/package-lock.json
	@command -v npm >/dev/null || { echo "The chat page needs Node.js 20 or newer to be built: install nodejs and npm."; exit 1; }
	npm --prefix $(WEB) ci --no-audit --no-fund --loglevel=error
	@touch $@

$(WEB)/dist/index.html: $(WEB)/node_modules/.installed $(shell find $(WEB)/src $(WEB)/public $(WEB)/*.html $(WEB)/*.ts $(WEB)/*.js -type f 2>/dev/null)
	@echo "Building the chat page …"
	npm --prefix $(WEB) run build --silent -- --logLevel warn

tests/clients/node_modules/.installed: tests/clients/package-lock.json
	npm --prefix tests/clients ci --no-audit --no-fund --loglevel=error
	@touch $@
