SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What the tests start as servers of their own. No service of these is ever started.
DEBIAN_PACKAGES := redis-server redis-tools etcd-server etcd-client zookeeper mariadb-server gcc libc6-dev iproute2 systemd chromium fonts-dejavu-core \
	$(if $(wildcard /usr/lib/postgresql/*/bin/initdb),,postgresql) $(if $(shell command -v npm),,nodejs npm)
# What `make matrix` needs beside those; Go of Debian is too old for the etcd of today.
MATRIX_PACKAGES := $(if $(shell command -v mvn),,default-jdk-headless maven)
ENGINE_PACKAGE_zookeeper := zookeeper
ENGINE_PACKAGE_postgres := postgresql
NODE_CLIENT := tests/e2e/node/node_modules/.package-lock.json
NODE_EXAMPLE := examples/node/node_modules/.package-lock.json

# Tests of seconds. Those marked slow, and the other rings, run in `make test`.
FAST_TESTS = $(wildcard tests/unit tests/scripts)

# Tests run side by side: more of them than cores, as many wait for servers. LONG=1: with all cases, where there are
# very many.
ALL_TESTS = $(filter-out $(MATRIX_TESTS),$(patsubst %/,%,$(filter-out %__pycache__/,$(wildcard tests/*/))))
# Tests that need compilers and registries of other languages: `make matrix`.
MATRIX_TESTS := tests/matrix
export LONG

# Bytecode is kept, whatever the environment says: the tests start hundreds of processes, and each would compile anew
# what it imports.
unexport PYTHONDONTWRITEBYTECODE

# Tests of what is built on a driver, or on the parser, for `make lowest`; but for what needs a type checker, and for what
# compiles messages, with a compiler that needs a newer protobuf.
DRIVER_TESTS = $(addprefix tests/unit/,backends client compat drivers engines guards locks) tests/behaviour tests/contract \
	--ignore tests/unit/client/test_typing.py \
	--deselect tests/unit/drivers/etcd/test_messages.py::test_messages_are_what_their_description_makes
LOWEST := .venv-lowest

# Tests of what the compiled build compiles, for `make compiled-tests`.
COMPILED_TESTS = tests/scripts $(addprefix tests/unit/,core node doors/test_* journal observe) tests/contract tests/property tests/simulation/test_seeds.py tests/unit/test_build.py

.PHONY: help
help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: setup servers ## everything a push must pass: lint, types, imports, every test
	@$(MAKE) -j2 -k --output-sync=target types compiled lint imports
	@$(BIN)/pytest -q -n 6 $(ALL_TESTS) || { [ $$? = 1 ] && echo "Failed beside others. Once more, alone; what passes now is too impatient, and has to be fixed:" && \
		$(BIN)/pytest -q -v --maxfail=5 --last-failed --last-failed-no-failures none $(ALL_TESTS); }

.PHONY: check
check: setup ## the fast ring, for every save: lint, types, imports, unit tests and scripts
	@$(MAKE) -j2 -k --output-sync=target types unit lint imports

.PHONY: contract
contract: setup servers ## every engine against the port's promises; ENGINE=file for one
	@$(BIN)/pytest -q tests/contract

.PHONY: matrix
matrix: setup servers ## clients in other languages, today's etcd releases, Apache Kafka: needs go; 10 minutes, the first time more
	@scripts/packages $(MATRIX_PACKAGES)
	@command -v go >/dev/null || { echo "make matrix needs Go 1.24 or newer: https://go.dev/dl" >&2; exit 1; }
	@$(BIN)/pytest -q -n 2 --dist loadfile $(MATRIX_TESTS)
	@scripts/matrix --passed

.PHONY: lowest
lowest: servers $(LOWEST)/.installed ## what is built on a driver, with the lowest versions allowed; ARGS='-k redis' for some
	@$(LOWEST)/bin/pytest -q -n 2 $(DRIVER_TESTS) $(ARGS)

$(LOWEST)/.installed: pyproject.toml scripts/lowest | setup
	@$(BIN)/python scripts/lowest > .lowest.txt
	@PIP_CONSTRAINT=.lowest.txt UV_CONSTRAINT=.lowest.txt scripts/setup $(PYTHON) $(LOWEST) tests
	@touch $@

.PHONY: run
run: $(VENV)/.server ## the embedded server on this machine, its data in .fencehold; ARGS='--port 7500' for more
	@$(BIN)/fencehold serve --data .fencehold $(ARGS)

.PHONY: cluster
cluster: setup ## three etcd members and three nodes on this machine, to play with; ENGINE=zookeeper for others
	@scripts/packages $(or $(ENGINE_PACKAGE_$(ENGINE)),etcd-server)
	@$(BIN)/python -m rig.cluster $(if $(ENGINE),--engine $(ENGINE)) $(ARGS)

.PHONY: demo
demo: setup ## three nodes with a lively, made-up load, and the dashboard to look at it; ARGS='--pace 3' for more
	@scripts/packages etcd-server || true
	@$(BIN)/python -m rig.demo $(ARGS)

.PHONY: simulate
simulate: setup ## the whole service on virtual time, faults and all; SEEDS=1000 FIRST=1, MINUTES=5 to stop earlier
	@$(BIN)/python -m tests.simulation --jobs 2 --seeds $(or $(SEEDS),100) --first $(or $(FIRST),1) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: bench
bench: setup servers ## measure: NAME=machine for one, QUICK=1 for the short form
	@$(BIN)/python -m bench $(or $(NAME),all)

.PHONY: wheel
wheel: ## build a wheel in dist/, and try it in a clean environment of every Python 3.11 to 3.13 there is; COMPILED=1: a compiled one, too
	@scripts/wheel $(PYTHON) dist $(if $(COMPILED),compiled)

# What is compiled, tested compiled: in an environment of its own over the packages of the usual one. The checkout's
# tests are run, and the wheel's modules.
.PHONY: compiled-tests
compiled-tests: setup servers ## build the compiled wheel, and run on it the tests of what is compiled; ARGS='-k door' for some
	@ENGINE=$(or $(ENGINE),file) scripts/compiled-tests $(BIN)/python .venv-compiled $(if $(ARGS),$(ARGS),$(COMPILED_TESTS))

.PHONY: compiled-build
compiled-build: setup ## the compiled build in .venv-compiled, which `make bench` then measures beside the pure one
	@scripts/compiled-build $(BIN)/python .venv-compiled

.PHONY: fmt
fmt: setup ## format, and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

.PHONY: blocking
blocking: setup ## the blocking client, made anew of the async one
	@$(BIN)/python scripts/blocking

.PHONY: messages
messages: setup ## the messages of etcd's protocol, made anew of src/fencehold/drivers/etcd/messages.proto
	@$(BIN)/python scripts/messages

.PHONY: stubs
stubs: setup ## the messages of the gRPC interface, made anew of proto/
	@$(BIN)/python scripts/stubs

.PHONY: reference
reference: setup ## the pages of gRPC, HTTP and metrics, made anew of what they describe
	@$(BIN)/python scripts/reference

.PHONY: pictures
pictures: setup ## the pictures of the dashboard in docs/pictures, taken anew of the demo
	@scripts/packages chromium fonts-dejavu-core
	@$(BIN)/python scripts/pictures

.PHONY: setup
setup: $(VENV)/.installed ## the virtual environment; does nothing unless pyproject.toml changed

$(VENV)/.installed: pyproject.toml
	@scripts/setup $(PYTHON) $(VENV) dev
	@touch $@ $(VENV)/.server

# What a server needs, and nothing of what tests need.
$(VENV)/.server: pyproject.toml
	@scripts/setup $(PYTHON) $(VENV) server
	@touch $@

.PHONY: servers
servers: ## the Debian packages and the Node client the tests need, those that are missing
	@scripts/packages $(DEBIAN_PACKAGES)
	@$(MAKE) --silent $(NODE_CLIENT) $(NODE_EXAMPLE)

%/node_modules/.package-lock.json: %/package-lock.json
	@npm ci --prefix $* --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

.PHONY: clean
clean: ## remove what is made again by itself; the environment and bench/results stay
	@rm -rf .artefacts .bench .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .hypothesis dist
	@find . -name $(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The parts of `check` and `test`: one line each, and what they say only when they fail.

.PHONY: lint
lint: setup
	@scripts/timed lint bash -c '$(BIN)/ruff check --quiet --output-format=concise . && $(BIN)/ruff format --check . && $(BIN)/python scripts/blocking --check'

.PHONY: types
types: setup
	@scripts/timed types $(BIN)/mypy

.PHONY: imports
imports: setup
	@scripts/timed imports $(BIN)/lint-imports

# The bytecode of all tests and of what they import: once, before six workers would all do it at the same time.
.PHONY: compiled
compiled: setup
	@scripts/timed compiled $(BIN)/pytest -q --collect-only $(ALL_TESTS)

.PHONY: unit
unit: setup
	@scripts/timed unit $(BIN)/pytest -q -n 2 -m 'not slow' $(FAST_TESTS)
