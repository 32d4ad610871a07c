SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := $(VENV)/.peers
SURVEY := $(VENV)/.survey
PYTHON ?= python3
FILES_AT_ONCE ?= 2
KILLS ?= 200
SEED ?= 1
RUNS ?= 20
GRAPHS ?= 1000
DATABASE ?= sqlite
PARTS ?= e2e integration stages contract unit

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 21

setup: $(STAMP) ## make the environment in .venv

$(STAMP): pyproject.toml ci/install $(wildcard worker/compiler/kernels/c/*)
	@ci/install "$(PYTHON)" "$(VENV)"
	@touch $@

demo: setup ## compile the MLP and the CNN through a service started for it
	@$(BIN)/python -m examples.demo

serve: setup ## start the app and a worker on bessemer-data, port 8000
	@$(BIN)/bessemer serve --data bessemer-data --port 8000

test: setup ## run every test, two files at a time; FILES_AT_ONCE=4 for more
	@$(BIN)/python -m pytest --numprocesses $(FILES_AT_ONCE) --dist loadfile --no-loadscope-reorder

flakes: setup ## run every test RUNS=20 times, and name what fails in any; PARTS="e2e integration" for some
	@RUNS="$(RUNS)" PARTS="$(PARTS)" FILES_AT_ONCE="$(FILES_AT_ONCE)" $(BIN)/python -m benchmarks.flakes

test-containers: setup ## build both images, run the compose file, compile, kill a worker; needs a container engine
	@$(BIN)/python -m pytest tests/containers --timeout 3600

lint: setup ## check style, types, container files and shell scripts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	@$(BIN)/hadolint Dockerfile deploy/worker/Dockerfile ci/containers/stand-ins/*.Dockerfile
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml ci/containers/stand-ins/compose.yml
	@$(BIN)/python ci/check_shell.py

format: setup ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: setup ## measure turnaround, cancelling, idling, tuning, confinement and upload memory
	@$(BIN)/python -m benchmarks

bench-models: $(PEERS) ## measure the example models beside other runtimes; MODELS="bert mlp" for some
	@$(BIN)/python -m benchmarks.models $(MODELS)

$(PEERS): pyproject.toml $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]' && touch $@ \
	  || echo "the other runtimes could not be installed; those that are missing are left out"

bench-service: setup ## load one app with 10,000 queued jobs and 100 followers; SIZES="100 1000" for less
	@$(BIN)/python -m benchmarks.service $(SIZES)

bench-architectures: $(SURVEY) ## take public architectures to verified libraries; NAMES="Bert swin" for some
	@$(BIN)/python -W ignore -m benchmarks.architectures $(NAMES)

$(SURVEY): pyproject.toml $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[survey]' && touch $@

bench-compile-time: setup ## compile and verify GRAPHS=1000 random graphs and print the slowest; SEED=1
	@$(BIN)/python -W ignore -m benchmarks.compile_time --graphs $(GRAPHS) --seed $(SEED)

soak: setup ## kill every kind of process while jobs run; KILLS=200 SEED=1 DATABASE=postgresql
	@KILLS="$(KILLS)" SEED="$(SEED)" DATABASE="$(DATABASE)" $(BIN)/python -m benchmarks.soak

docs: setup ## rewrite the generated parts of docs/ from the code
	@$(BIN)/python -m docs

.PHONY: help setup demo serve test flakes test-containers lint format bench bench-models bench-service bench-architectures bench-compile-time soak docs
