# Needs Python 3.11 or newer and make; everything else is fetched. `make help` lists the targets.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo recording quick test smoke check docs bench wheels lock

PYTHON := .venv/bin/python
PACKAGES := shared tap-spark-jdbc target-spark-lake
DRIVERS := postgresql mariadb sqlite
# With SPARK=3.5 (4.0, 4.1, 4.2) `make test` and `make smoke` use that version, in an environment of its own: all else is as
# locked. What they run depends on Spark, as one pipe after the other: what each version must be able to do.
VENV := $(if $(SPARK),.venv-spark-$(SPARK),.venv)
SMOKE := tests/shared/engine/test_spark_versions.py tests/end_to_end/syncs/test_both_engines.py
OF_SPARK := $(SMOKE) tests/end_to_end/syncs tests/tap/send/test_engines.py tests/tap/supply/test_spark_reader.py
OF_SPARK += tests/tap/extract/late_commits/test_one_snapshot.py
OF_SPARK += tests/target/formats/merging/test_newest_row.py tests/target/validate/test_values.py
# Processes that share the tests, a file each: every one has a Spark session and servers of its own. Tests also wait, so three
# keep two cores busy; each takes up to 4 GB of memory.
WORKERS ?= 3
# The variable silences an advertisement.
MKDOCS := NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
SETTINGS := requirements.lock pyproject.toml $(PACKAGES:%=%/pyproject.toml)
EXPORT = $(UV) export --quiet --all-packages --all-extras --no-emit-workspace --no-header --no-annotate

# The machine's uv, else one of our own.
UV_VERSION := 0.13.8
UV := $(or $(shell command -v uv 2>/dev/null),.tools/uv/bin/uv)
# Where the machine has certificates of its own (a company's mirror), uv must trust them too.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),)
export UV_SYSTEM_CERTS := true
endif

# The suite starts our programs a thousand times: Python keeps what it compiled, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make setup   install everything into .venv"
	@echo "make demo    a small database, a full sync, changes, an incremental sync"
	@echo "make recording  record the README's pictures of a first run and of the report"
	@echo "make test    the whole suite against real servers (make test ARGS='-k NAME' for a part)"
	@echo "make test ENGINE=spark ARGS=tests/end_to_end  the pipes with all work in Spark tasks"
	@echo "make test SPARK=3.5  the tests that depend on Spark, with another version (3.5, 4.0, 4.1 or 4.2)"
	@echo "make smoke SPARK=3.5  the most important of these: each engine, first load, increment and merge"
	@echo "make quick   the short tests, which need no JVM and no server"
	@echo "make check   lint, types, import rules, links of the docs: what CI runs"
	@echo "make docs    build the documentation as web pages, in site/"
	@echo "make bench   run the benchmarks and print their tables"
	@echo "make wheels  build the three wheels in dist/, to install without this checkout"
	@echo "make lock    update requirements.lock to the newest versions that pyproject.toml allows"

setup: .venv/.ready .demo/shop.db

demo: setup
	@bash demo/run.sh

# The README's pictures, best recorded on a quiet machine: a first run, the next one and a query; the report of a small lake.
recording: .venv/.tested
	@PYTHONPATH=tests $(PYTHON) demo/record.py docs/first-run.svg
	@PYTHONPATH=tests $(PYTHON) demo/report_picture.py docs/report

test: $(VENV)/.tested
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ENGINE:%=--engine %) \
	  $(or $(ARGS),$(if $(SPARK),$(OF_SPARK)))

smoke: $(VENV)/.tested
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist load $(SMOKE)

quick: .venv/.tested
	@$(PYTHON) -m pytest -n $(WORKERS) --quick $(ARGS)

check: .venv/.tested
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy $(PACKAGES:%=%/src)
	.venv/bin/lint-imports --no-cache
	.venv/bin/lint-imports --no-cache --config layers.toml
	@$(MKDOCS)

# Needs no network. A broken link or anchor is an error.
docs: .venv/.tested
	@$(MKDOCS)
	@echo "with search: $(PYTHON) -m http.server --directory site, then http://localhost:8000"

# With ARGS the loads alone, as benchmarks/run.py takes them; with ROWS everything once, on tables of so many rows.
bench: .venv/.tested
	@$(PYTHON) benchmarks/run.py $(or $(ARGS),$(if $(ROWS),--rows $(ROWS),--repeat 3 --plot docs/benchmarks.svg))
ifeq ($(ARGS),)
	@$(PYTHON) benchmarks/tables.py
	@$(PYTHON) benchmarks/merge.py $(ROWS:%=--rows %)
	@$(PYTHON) benchmarks/mariadb.py $(ROWS:%=--rows %)
	@$(PYTHON) benchmarks/everyday.py $(if $(ROWS),--rounds 1 --share 100)
endif

# uv.lock names the package index of whoever made it, so this file is the one that is kept.
lock: | $(UV)
	$(UV) lock --upgrade
	$(EXPORT) --no-group dev --output-file requirements.lock
	$(EXPORT) --all-groups --output-file requirements-dev.lock

.venv/.ready: $(SETTINGS) Makefile | $(UV)
	@echo "setting up .venv ..."
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null \
	  || $(UV) venv --quiet --clear --python ">=3.11" .venv
	@$(UV) pip sync --quiet --python $(PYTHON) --require-hashes requirements.lock
	@$(UV) pip install --quiet --python $(PYTHON) --no-deps --no-build-isolation $(PACKAGES:%=--editable ./%)
	@$(PYTHON) -m tap_spark_jdbc.source.drivers $(DRIVERS)
	@$(PYTHON) -m singer_spark.engine.class_archive || echo "Spark starts without an archive of its classes: slower, else the same" >&2
	@touch $@

# What only tests, checks and benchmarks need.
.venv/.tested: requirements-dev.lock .venv/.ready .demo/shop.db
	@echo "adding what the tests need ..."
	@$(UV) pip install --quiet --python $(PYTHON) --require-hashes --requirement requirements-dev.lock
	@touch $@

# The locked environment, except for PySpark.
.venv-spark-%/.tested: tests/spark_versions/%.lock requirements-dev.lock $(SETTINGS) | $(UV)
	@echo "setting up PySpark $* in $(@D) ..."
	@$(UV) venv --quiet --clear --python ">=3.11,<3.14" $(@D)
	@awk "/^[^ ]/ {kept = !/^pyspark==/} kept" requirements-dev.lock | cat - $< > $(@D)/requirements.txt
	@$(UV) pip sync --quiet --python $(@D)/bin/python --require-hashes $(@D)/requirements.txt
	@$(UV) pip install --quiet --python $(@D)/bin/python --no-deps --no-build-isolation $(PACKAGES:%=--editable ./%)
	@$(@D)/bin/python -m tap_spark_jdbc.source.drivers $(DRIVERS)
	@touch $@

wheels: setup
	@rm -rf dist
	@for package in $(PACKAGES); do (cd $$package && ../$(PYTHON) -m hatchling build --target wheel --directory ../dist) || exit 1; done

# meltano.yml reads this shop; `make demo` recreates it.
.demo/shop.db: | .venv/.ready
	@$(PYTHON) demo/make_database.py $@

.tools/uv/bin/uv:
	@echo "fetching uv ..."
	@python3 -m venv .tools/uv || { rm -rf .tools/uv; echo "python3 can't make a virtual environment: install uv, or Debian's python3-venv" >&2; exit 1; }
	@.tools/uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
