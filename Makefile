# Every target makes what it needs first; all of them can be run again at no cost.
VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
PACKAGES := fjm2 fjm2admin fjm2d bench
# The bench starts brokers of its own. As services they would be open to whoever can reach this machine.
BROKERS := mosquitto
APT_PACKAGES := libnorm1 libnorm-dev gcc libc6-dev tshark iproute2 iptables nftables libactivemq-java default-jdk-headless \
	chromium openssl systemd $(BROKERS) libjgroups-java tmux fuse3 eatmydata
FUZZ_CASES ?= 1000000
HOSTILE_CASES ?= 10000000
CREEDSOLO := $(VENV)/.creedsolo
WORKERS ?= 6
CALM_WORKERS ?= 8
FJM2_BENCH := $(VENV)/bin/fjm2-bench
PLAN ?= --quick
SCALE_ROWS ?= 2000000 20000000
BENCH ?= .build/bench/$(shell date +%Y%m%dT%H%M%S)
BENCH := $(BENCH)
# A file stays with one worker. The longest come first (tests/conftest.py), the short ones of tests/unit fill the end.
# The gateways' lab of three networks takes minutes and has a target of its own.
SUITE := --ignore=tests/lab
SIDE_BY_SIDE := $(SUITE) -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Where something is marked so: to read all other files for it would take longer.
marked = $(shell grep -rlw --include='test_*.py' --exclude-dir=lab 'mark\.$(1)' tests)

.PHONY: help demo ready test nightly lab test-fast lint fmt api map counters changelog fuzz micro bench docs packaging system-deps clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(INSTALLED)  ## see FJM2 at work on this host, in under a minute
	$(PY) examples/demo.py

# Side by side: pip and apt take a minute each.
ready:
	@$(MAKE) --no-print-directory --jobs=2 $(INSTALLED) system-deps

# Tests wait as much as they compute, so there are more workers than cores. Tests that depend on time come after the
# others: first the `calm` ones, which hardly compute, a few at a time, then the `alone` ones, one by one.
# $(1) is a condition on markers that ends in "and", or nothing. $(2) are options.
define run_suite
@status=0; \
$(PY) -m pytest $(2) $(SIDE_BY_SIDE) -m "$(1) not alone and not calm" || status=$$?; \
if [ $$status = 2 ]; then exit 2; fi; \
$(PY) -m pytest $(2) -n $(CALM_WORKERS) --dist worksteal -m "$(1) calm and not alone" $(call marked,calm) || status=$$?; \
if [ $$status = 2 ]; then exit 2; fi; \
$(PY) -m pytest $(2) -m "$(1) alone" $(call marked,alone) || status=$$?; \
exit $$status
endef

test: ready  ## the test suite but for its exhaustive parts, WORKERS files at a time
	$(call run_suite,not nightly and)

nightly: ready  ## all tests: those of `make test`, the exhaustive ones, and the lab
	$(call run_suite,,--hypothesis-profile=fjm2)
	$(MAKE) lab

lab: ready  ## three networks, their gateways and the admin service, in namespaces: minutes, as root
	$(PY) -m pytest tests/lab

test-fast: $(INSTALLED)  ## unit tests but for slow ones: no socket, no root, a minute
	$(PY) -m pytest -q $(SIDE_BY_SIDE) -n 2 --hypothesis-profile=fjm2-fast -m "not nightly and not slow" tests/unit

lint: $(INSTALLED)  ## formatting, lint and strict types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy $(PACKAGES)

fmt: $(INSTALLED)  ## format and fix what can be fixed
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

api: $(INSTALLED)  ## list the public names and signatures anew, after a change of them that is meant
	$(PY) tests/unit/test_public_api.py

counters: $(INSTALLED)  ## write the lists of counters into dataclasses and documentation
	$(PY) tests/unit/test_counters.py

map: $(INSTALLED)  ## write the table of layers into docs/dev/map.md
	$(PY) tests/unit/test_layers.py

project: $(INSTALLED)  ## write the addresses in project.toml into README, docs and metadata
	$(PY) tests/unit/test_project.py

texts: $(INSTALLED)  ## list the texts of all exceptions anew, after a change of them that is meant
	$(PY) tests/unit/test_error_catalog.py
	$(PY) tests/docs/test_error_texts.py

changelog: $(INSTALLED)  ## gather docs/changes into CHANGELOG.md
	$(PY) docs/changes/gather.py

fuzz: $(INSTALLED)  ## FUZZ_CASES mutated datagrams and trains through the codec, HOSTILE_CASES through the engine
	$(PY) tests/fuzz.py --cases $(FUZZ_CASES)
	$(PY) tests/hostile --cases $(HOSTILE_CASES)

micro: $(CREEDSOLO)  ## what the inner functions cost, beside their peers
	$(VENV)/bin/fjm2-bench micro

# With the BENCH of a run that was broken off, it goes on from there. PLAN may be a file of your own.
bench: $(CREEDSOLO) system-deps  ## PLAN's experiments beside other systems, aggregated on Spark, and a report: as root
	$(FJM2_BENCH) run $(PLAN) --to $(BENCH)/traces
	$(FJM2_BENCH) traces all --settle 0 $(BENCH)/traces $(BENCH)/warehouse --to $(BENCH)/report
	@echo "the report: $(abspath $(BENCH))/report/report.html"

scale: $(INSTALLED)  ## SCALE_ROWS generated lines through the Spark pipeline: how time grows, memory, DuckDB's opinion
	@mkdir -p .build
	$(FJM2_BENCH) traces scale $(SCALE_ROWS:%=--rows %) --folder .build

packaging: $(INSTALLED)  ## the wheel and each extra by pip, in clean environments, and what they are for: minutes
	$(PY) tests/packaging/installing.py

docs: $(INSTALLED)  ## the documentation as a site, in .build/site
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
	@echo "the site: $(abspath .build/site)/index.html; with its search: $(PY) -m http.server -d .build/site"

# Peers and tools of the tests (libnorm, tshark, namespaces). Without root the tests that need them skip and say so.
system-deps:
	@if dpkg -s $(APT_PACKAGES) >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		mkdir -p /etc/systemd/system; \
		for name in $(BROKERS); do \
			dpkg -s $$name >/dev/null 2>&1 || ln -sfn /dev/null /etc/systemd/system/$$name.service; \
		done; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $(APT_PACKAGES) >/dev/null; \
	else echo "not root or no apt-get: tests that need $(APT_PACKAGES) will skip"; fi

# pip would compile with one processor, and the tests of pandas as well, which take half of the time.
$(INSTALLED): setup.cfg pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check --upgrade pip
	$(PY) -m pip install -q --disable-pip-version-check --no-compile -e '.[dev,docs,admin,bench,gateway,otel,spark]'
	@$(PY) -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib || :
	@touch $@

# reedsolo's C extension is a peer of the bench only. PyPI has it as source, to be built with Cython.
$(CREEDSOLO): $(INSTALLED)
	-$(PY) -m pip install -q --disable-pip-version-check cython setuptools wheel && \
	$(PY) -m pip install -q --disable-pip-version-check --force-reinstall --no-deps --no-cache-dir \
		--no-build-isolation --no-binary reedsolo --config-settings=--build-option=--cythonize reedsolo
	@touch $@

clean:  ## remove everything the other targets made
	rm -rf $(VENV) .build build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
