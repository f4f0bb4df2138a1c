# Everything a developer types. `make help` lists it; `make demo` and `make test` need only
# Python 3.11+ and make: scripts/bootstrap.sh sees to the rest.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.ONESHELL:
.SHELLFLAGS := -eu -c
MAKEFLAGS += --no-print-directory
# Where the environment forbids bytecode, each of the thousand Python processes of a `make test` would
# compile the same 200 modules: a third of what a short worker of Spark costs.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
SCALE ?= 0.1
MINUTES ?= 60
ROUNDS ?= 5
TIER ?= 2
SIM_1 := .rules
SIM_commits := .commits
# Which tests of each stage run (pytest's -m): `make full` takes the long ones as well.
ONLY := not full
# Java's archive of Spark's classes; see tests/spark/class_archive.py.
CLASSES := $(CURDIR)/.venv/spark-classes.jsa
SHARE_CLASSES := JDK_JAVA_OPTIONS="-XX:SharedArchiveFile='$(CLASSES)' -Xlog:cds*=off"
PYTEST := $(BIN)/python -m pytest -q --durations=5 --durations-min=5
# Stages that start clusters side by side must not draw the same ports; see spark_bookkeeper/local/ports.py.
PORTS := BOOKKEEPER_LOCAL_PORTS

# $(call stage,name,command): runs the command, prints the seconds it took, stops at a failure.
define stage
echo "== $(1)"
start=$$(date +%s)
if $(2); then
	echo "== $(1): passed in $$(( $$(date +%s) - start )) s"
else
	rc=$$?
	echo "== $(1): FAILED after $$(( $$(date +%s) - start )) s"
	exit $$rc
fi
endef

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z.]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: bootstrap
bootstrap: ## Virtual environment and Java, when missing or out of date
	@scripts/bootstrap.sh

.PHONY: demo
demo: bootstrap ## Local cluster, Spark on TPC-H data, crashes, report (SCALE=0.1)
	@$(BIN)/bookkeeper demo --scale $(SCALE)

.PHONY: check
check: bootstrap ## Format, lint, types and tidiness; seconds
	@$(call stage,format,$(BIN)/ruff format --check --quiet .)
	$(call stage,lint,$(BIN)/ruff check --quiet .)
	$(call stage,types,$(BIN)/mypy --no-error-summary)
	$(call stage,tidy,$(PYTEST) tests/test_tidy.py)

# Not a condition: without it Spark only starts more slowly.
$(CLASSES): | bootstrap
	@$(BIN)/python -W ignore -m tests.spark.class_archive $@ 2>/dev/null ||
		echo "no archive of Spark's classes; Spark starts without it" >&2

# One of the parts of `make test` and `make full`, on its own as well. They share nothing, so as many run at once as
# there are cores, the longest first; each prints what it has to say when it ends.
STAGES := test.spark test.units test.processes test.simulation
REST := --ignore=tests/test_tidy.py --ignore=tests/simulation

.PHONY: test
test: check $(CLASSES) ## What CI runs: check, then unit tests, simulation, process and Spark tests
	@echo "== $(STAGES): $$(nproc) at a time"
	$(MAKE) --jobs=$$(nproc) --output-sync=target $(STAGES)

.PHONY: $(STAGES)
$(STAGES): | bootstrap

test.units:
	@$(call stage,unit tests,$(PYTEST) $(REST) -m "$(ONLY) and not zookeeper and not spark and not integration")

test.simulation:
	@$(call stage,simulation,$(PYTEST) tests/simulation -m "$(ONLY)")

test.processes:
	@$(call stage,process tests,$(PORTS)=1/2 $(PYTEST) $(REST) -m "$(ONLY) and (zookeeper or integration) and not spark")

test.spark: $(CLASSES)
	@$(call stage,spark tests,$(PORTS)=2/2 $(SHARE_CLASSES) $(PYTEST) $(REST) -m "$(ONLY) and spark")

.PHONY: full
full: check $(CLASSES) ## Every test, the long ones too
	@echo "== $(STAGES), whole: $$(nproc) at a time"
	$(MAKE) --jobs=$$(nproc) --output-sync=target $(STAGES) ONLY="(full or not full)" \
		PYTEST="$(PYTEST) --timeout=3600 --hypothesis-profile=fresh"

.PHONY: interop
interop: bootstrap ## Apache BookKeeper's client, shell, auto-recovery and bookies beside ours (needs a JDK and Maven; else it skips)
	@$(PYTEST) -rs tests/interop

.PHONY: sim
sim: bootstrap ## One simulated run again, with its trace (SEED=n; TIER=1: rules, TIER=commits)
	@$(if $(SEED),,echo "make sim SEED=n: which run?" >&2; exit 2)
	$(BIN)/python -m tests.simulation$(SIM_$(TIER)) --seed $(SEED) --trace

.PHONY: soak
soak: bootstrap ## Simulated worlds and commits for MINUTES=60, a million inputs for the decoders, then bookies and Spark drivers killed, then one demo
	@first=$$(date +%s)
	runs=
	for core in $$(seq $$(nproc)); do
		tier=$$([ $$(( core % 4 )) = 2 ] && echo .commits || true)
		$(BIN)/python -m tests.simulation$$tier --seed $$(( first * 100 + core * 1000000 )) --minutes $(MINUTES) &
		runs="$$runs $$!"
	done
	for run in $$runs; do wait $$run; done
	$(BIN)/python -W ignore -m tests.fuzzing --inputs 1000000 --processes $$(nproc)
	$(BIN)/python -W ignore -m tests.integration.crash_campaign --kills 400
	$(BIN)/python -m tests.spark.kills --minutes $$(( $(MINUTES) / 4 ))
	$(BIN)/bookkeeper demo --scale $(SCALE)

.PHONY: bench
bench: bootstrap ## Speed beside each workload's ceiling (SCALE=0.1; 1 for the real figures); PEERS=1: beside Apache BookKeeper, Delta and Kafka
	@$(BIN)/python -m benchmarks $(if $(PEERS),peers --rounds $(ROUNDS),all --scale $(SCALE))
	if [ -n "$(PEERS)" ]; then $(BIN)/python -m benchmarks spark-peers --rounds $(ROUNDS) --scale $(SCALE); fi

.PHONY: notebooks
notebooks: bootstrap ## Runs examples/*.ipynb from clean, in place; fails if a result changed
	@$(BIN)/python -W ignore -m scripts.run_notebooks

.PHONY: dist
dist: bootstrap ## Wheel, source archive and bill of materials in dist/
	@rm -rf dist
	# No isolation: an environment of its own would be filled without looking at hashes.
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(BIN)/python -m scripts.bill_of_materials dist
	ls dist

.PHONY: clean
clean: ## Removes everything that can be made again
	@rm -rf .venv dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
