SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := $(VENV)/.peers
SURVEY := $(VENV)/.survey
GUIDE := app/guide/index.html
PYTHON ?= python3
FILES_AT_ONCE ?= 2
KILLS ?= 200
SEED ?= 1
RUNS ?= 20
GRAPHS ?= 1000
SECONDS ?= 60
FUZZED ?= tests/unit/fuzz tests/integration/app/test_app_schema.py
DATABASE ?= sqlite
REQUESTS ?=
ARCH ?= sm_90
BATCHES ?= 1
DTYPE ?= float32
PARTS ?= e2e integration stages contract unit
PYTEST = export TMPDIR="$$(mktemp -d)" && chmod 755 "$$TMPDIR" && trap 'rm -rf "$$TMPDIR"' EXIT && \
  $(BIN)/python -m pytest --numprocesses $(FILES_AT_ONCE) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help

help: ## list targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 21

setup: $(STAMP) ## create the environment in .venv

$(STAMP): pyproject.toml locks/dev.txt ci/install $(wildcard worker/compiler/kernels/c/* worker/compiler/codegen/standalone/c/*)
	@ci/install "$(PYTHON)" "$(VENV)"
	@touch $@

demo: setup ## start a service and compile two trained networks
	@$(BIN)/python -m examples.demo

serve: setup $(GUIDE) ## start the app and a worker on port 8000, with data in bessemer-data
	@$(BIN)/bessemer serve --data bessemer-data --port 8000

test: setup ## run the tests without the slow ones; FILES_AT_ONCE=2 sets the parallelism
	@$(PYTEST) --sample

test-all: setup ## run every test
	@$(PYTEST)

flakes: setup ## run every test RUNS=20 times and list failures; PARTS="e2e integration" selects
	@RUNS="$(RUNS)" PARTS="$(PARTS)" FILES_AT_ONCE="$(FILES_AT_ONCE)" $(BIN)/python -m benchmarks.flakes

fuzz: setup ## fuzz each parser and the API for SECONDS=60; FUZZED="FILE::TEST" selects
	@FUZZ_SECONDS="$(SECONDS)" $(BIN)/python -m pytest -p tests.fuzzing --hypothesis-profile fuzz -m fuzz --timeout 0 $(FUZZED)

test-containment: setup ## attack the sandbox as root, as a plain user and as in Docker; needs root
	@ci/containment

test-containers: setup ## test the images, the compose file and bundles on bare systems; needs a container engine
	@$(BIN)/python -m pytest tests/containers --timeout 3600

lint: setup ## check style, types, container files and shell scripts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	@$(BIN)/hadolint Dockerfile deploy/worker/Dockerfile ci/containers/stand-ins/*.Dockerfile
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml ci/containers/stand-ins/compose.yml
	@$(BIN)/python ci/check_shell.py

format: setup ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: setup ## benchmark turnaround, cancellation, idling, tuning, confinement, keys, uploads and the console
	@$(BIN)/python -m benchmarks

bench-models: $(PEERS) $(SURVEY) ## benchmark models against other runtimes; MODELS="bert mlp" BATCHES="1 8" DTYPE=bfloat16 select
	@$(BIN)/python -W ignore -m benchmarks.models $(MODELS) --batches $(BATCHES) --dtype $(DTYPE)

$(PEERS): pyproject.toml $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]' && touch $@ \
	  || echo "some runtimes could not be installed and are skipped"

bench-programs: $(PEERS) ## benchmark how bundles' programs start, beside ONNX Runtime; MODELS="bert mlp" selects
	@$(BIN)/python -W ignore -m benchmarks.programs $(MODELS)

bench-decoder: $(PEERS) $(SURVEY) ## benchmark a decoder's tokens per second against other runtimes
	@$(BIN)/python -W ignore -m benchmarks.decoder

bench-loading: $(PEERS) $(SURVEY) ## benchmark how fast a library loads, its peak memory and what processes share
	@$(BIN)/python -W ignore -m benchmarks.loading

bench-gpu: setup ## compile models and products for a GPU; CASES="bert-32-bf16" and ARCH=sm_90 select
	@$(BIN)/python -W ignore -m benchmarks.gpu.prepare gpu-bench $(ARCH) $(CASES) && $(BIN)/python -W ignore -m benchmarks.gpu.products gpu-bench $(ARCH)
	@echo "on a machine with a GPU: python -m benchmarks.gpu.measure gpu-bench benchmarks/results/$$(date +%F)-gpu.json --compile"

bench-gpu-kernels: setup ## list what the kernels of models use on sm_80 and sm_90, without a GPU; CASES="bert-1-bf16" selects
	@$(BIN)/python -W ignore -m benchmarks.gpu.kernels $(CASES)

bench-service: setup ## benchmark an app with 10,000 queued jobs; SIZES="100 1000" sets other sizes
	@$(BIN)/python -m benchmarks.service $(SIZES)

bench-convolutions: setup ## time convolutions, direct and by Winograd; LAYERS="64x56x64 80x1x3000x512" selects
	@$(BIN)/python -m benchmarks.convolutions $(LAYERS)

bench-grouped: setup ## time grouped convolutions beside other runtimes; LAYERS="128x56x32" selects
	@$(BIN)/python -m benchmarks.grouped $(LAYERS)

bench-chains: setup $(SURVEY) ## time convolutions and the windows behind them as one function and as two; CASES="vgg-stem" selects
	@$(BIN)/python -W ignore -m benchmarks.chains $(CASES)

bench-dynamic: setup $(SURVEY) ## time models of dynamic sizes beside those of fixed sizes; CASES="resnet18-batch" selects
	@$(BIN)/python -W ignore -m benchmarks.dynamic_sizes $(CASES)

bench-search: setup ## compare a search's trials a minute with stock MetaSchedule's builder and runner; MODEL=resnet18 selects
	@$(BIN)/python -W ignore -m benchmarks.search_rate $(MODEL)

bench-cost-model: setup ## measure plans, and train the cost model that ships with the project; MINUTES=30
	@$(BIN)/python -W ignore -m benchmarks.cost_model $(if $(MINUTES),--minutes $(MINUTES))

bench-tuning: $(PEERS) ## latency over a search's time beside stock MetaSchedule; MODELS="resnet18 bert" SECONDS=120 select
	@$(BIN)/python -W ignore -m benchmarks.searching $(MODELS) $(if $(filter command line,$(origin SECONDS)),--seconds $(SECONDS)) --compare

bench-tiles: setup ## time the register tiles of convolutions; LAYERS="256x14x1024" selects
	@$(BIN)/python -m benchmarks.tiles $(LAYERS)

bench-copies: setup $(SURVEY) ## print the share of models' time without products; MODELS="densenet121" BATCH=8
	@$(BIN)/python -W ignore -m benchmarks.copies $(MODELS)

bench-fairness: setup ## simulate how 1,000 tenants with 1,000,000 jobs share workers
	@$(BIN)/python -m benchmarks.fairness

bench-architectures: $(SURVEY) ## survey public architectures; NAMES="Bert swin" selects
	@$(BIN)/python -W ignore -m benchmarks.architectures $(NAMES)

$(SURVEY): pyproject.toml benchmarks/architectures/packages.txt $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[survey]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/architectures/packages.txt && touch $@

bench-compile-time: setup ## compile GRAPHS=1000 random graphs and models of 100 to 1,000 parts; SEED=1
	@$(BIN)/python -W ignore -m benchmarks.compile_time --graphs $(GRAPHS) --seed $(SEED)
	@$(BIN)/python -W ignore -m benchmarks.compile_time.scaling

turnaround: $(SURVEY) ## compile published models through a service; MODELS="Swin-T BERT-base" selects
	@$(BIN)/python -W ignore -m benchmarks.compile_time.published $(MODELS)

soak: setup ## kill processes while jobs run; KILLS=200 SEED=1 DATABASE=postgresql REQUESTS=tune
	@KILLS="$(KILLS)" SEED="$(SEED)" DATABASE="$(DATABASE)" REQUESTS="$(REQUESTS)" $(BIN)/python -m benchmarks.soak

docs: setup ## regenerate parts of docs/ from the code
	@$(BIN)/python -m docs

guide: $(GUIDE) ## build the documentation site, which the app serves at /guide

$(GUIDE): mkdocs.yml README.md $(wildcard docs/* docs/*/*) $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && touch $@

lock: setup ## write the lock files again; UPGRADE=1 takes newer versions
	@ci/lock "$(VENV)"

audit: setup ## look for known vulnerabilities of the locked packages
	@$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement locks/worker.txt || \
	  { echo "found vulnerabilities, or cannot reach PyPI's JSON API, which lists them"; exit 1; }

sbom: setup ## write sbom/app.json and sbom/worker.json in CycloneDX's format
	@mkdir -p sbom && for image in app worker; do \
	  $(BIN)/cyclonedx-py requirements --output-reproducible --output-file sbom/$$image.json locks/$$image.txt && echo "written to sbom/$$image.json"; done

.PHONY: help setup lock audit sbom demo serve test flakes fuzz test-containment test-containers lint format bench bench-models bench-programs bench-decoder bench-loading bench-gpu bench-gpu-kernels bench-service bench-fairness bench-copies bench-search bench-tuning bench-cost-model bench-tiles bench-grouped bench-chains bench-dynamic bench-architectures bench-compile-time turnaround soak docs guide
