# Everything a developer runs; `make help` explains it.
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCENARIO ?= leak
FUZZ_SECONDS ?= 60
ARGS ?=

# The first Python that is new enough; PYTHON names one's own choice.
define FIND_PYTHON
for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
	python=; \
done; \
if [ -z "$$python" ]; then \
	echo "setup: no Python 3.11 or newer on PATH: install python3 and python3-venv," \
		"or name one with make PYTHON=/path/to/python" >&2; exit 1; \
fi
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo live test fuzz lint types generate bench bench-detect clean

help: ## explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "ARGS=... is handed on, as in: make demo ARGS=--check, make test ARGS='-k leak'"

setup: $(READY) ## make .venv with Leadline and the development tools

$(READY): pyproject.toml
	@$(FIND_PYTHON); "$$python" -m stack.environment "$(VENV)"
	@touch "$@"

demo: $(READY) ## play a leaking cluster on the real stack; SCENARIO=NAME: docs/scenarios.md
	@$(BIN)/leadline demo --scenario $(SCENARIO) $(ARGS)

live: $(READY) ## real vLLM prefill and decode on this machine, a real leak, its page (a few GB, minutes)
	@$(BIN)/python -m benchmarks.live $(ARGS)

test: $(READY) ## run every test, against real Prometheus and Alertmanager
	@$(BIN)/python -m stack.binaries prometheus promtool alertmanager amtool
	$(BIN)/python -m pytest $(ARGS)

fuzz: $(READY) ## search for inputs that break a parser or a detector: new ones on every run
	@$(BIN)/python -m stack.binaries prometheus promtool alertmanager amtool
	$(BIN)/python -m pytest --hypothesis-profile=search -m hypothesis $(ARGS)
	$(BIN)/python tests/fuzz/fuzz_exporters.py --seconds $(FUZZ_SECONDS)

lint: $(READY) ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## check types
	$(BIN)/mypy $(ARGS)

generate: $(READY) ## rewrite what is generated: rules, dashboards, metric reference, OpenAPI
	$(BIN)/python -m catalog.docs
	$(BIN)/python docs/generate.py
	$(BIN)/leadline rules -o alerts
	$(BIN)/leadline dashboards -o dashboards/json
	$(BIN)/python -m detectors.service.openapi

bench: $(READY) ## measure what collecting and judging cost on this machine
	$(BIN)/python -m benchmarks $(ARGS)

bench-detect: $(READY) ## compare the detectors with others: benchmarks/RESULTS.md; ARGS='--data FOLDER'
	@$(BIN)/python -m benchmarks detect-compare -- $(ARGS)

clean: ## remove the environment and caches of this folder (unpacked programs in ~/.cache stay)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
