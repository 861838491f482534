# SPDX-License-Identifier: Apache-2.0
# `make` alone lists the everyday targets, `make help-all` every target and variable. `make check` is exactly what CI runs.
# `## text` describes an everyday target, `#+ text` a rare one, `#= NAME text` a variable that a user may set.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Written by `make versions`.
# spark-versions.toml: variables
SPARKS := 4.3 4.2 4.1 4.0 3.5
JAR_OF_4.3 := 4.2_2.13
JAR_OF_4.2 := 4.2_2.13
JAR_OF_4.1 := 4.1_2.13
JAR_OF_4.0 := 4.0_2.13
JAR_OF_3.5 := 3.5_2.12
JAR_NAMES := 4.2_2.13 4.1_2.13 4.0_2.13 3.5_2.12 3.5_2.13
RAPIDS := 26.08.1
RAPIDS_SPARK := 4.1
DELTA := 4.4.0
ICEBERG := 1.12.0
TABLES_SPARK := 4.1
# spark-versions.toml: end
# Releases of Iceberg for the other Sparks that Delta supports. Iceberg has no release for 4.2 yet. Spark 3.5 needs an older Delta.
ICEBERG_FOR_3.5 := 1.12.0
ICEBERG_FOR_4.0 := 1.11.0
ICEBERG_FOR_4.2 := none
ICEBERG := $(or $(ICEBERG_FOR_$(TABLES_SPARK)),$(ICEBERG))
DELTA_FOR_3.5 := 3.3.2
DELTA := $(or $(DELTA_FOR_$(TABLES_SPARK)),$(DELTA))
# Comet's native writer of Iceberg tables knows this release of Iceberg.
COMET := 1.2.0
COMET_ICEBERG := 1.11.0
NEWEST := $(firstword $(SPARKS))
OLDER := $(filter-out $(NEWEST),$(SPARKS))

#= SPARK Spark of the demo, the pool, the images and single test targets
SPARK ?= $(NEWEST)
#= PORT port of `make pool`; it listens at PORT + 10 (admin) and PORT + 1010 (metrics) too
PORT ?= 8815
#= WORKERS workers of `make pool`
WORKERS ?= 2
#= WRITER_PORT port of `make writer`; it listens at WRITER_PORT + 10 and WRITER_PORT + 1010 too
WRITER_PORT ?= 8816
#= WRITE_ROOTS directories, separated by commas, that `make writer` may write below
WRITE_ROOTS ?= /tmp,$(CURDIR)/build
#= DEMO options of `make demo` and `make demo-kill` (--help lists them)
#= BENCH options of each bench target (--help lists them)
#= BASE checkout that `make bench-against` compares with
#= FUZZ options of `make fuzz` (--seconds 600, --target NAME, --guided, --help)
#= SOAK options of `make soak` (--minutes 10, --rolling, --help)
#= SIMULATE options of `make simulate` (--seeds 10000, --minutes 10, --seed N, --help)
#= STRICT set it (STRICT=1) to make tests fail that would be skipped
#= FAULTS pytest's options for `make faults` (-k network)
#= AUDIT options of `make audit` (--offline asks nobody for known vulnerabilities)
#= IMAGES registry from which the nodes of `make e2e-kube` pull their images
IMAGES ?= localhost
#= KUBECONFIG cluster of `make e2e-kube`
#= PUSH options of `buildah push` (--tls-verify=false)
#= SUFFIX end of the tags of `make push-images` and `make e2e-kube` (-spark4.3-amd64)
#= TAG tag of the release that `make check-tag` holds against the version
#= BUILDAH options of buildah (--build-arg BASE=... names another base image)
#= SOURCE address of the repository, for the labels of images and for links of the documentation site to files
#= SITE address under which `make publish-site` publishes the versions of the documentation
#= ARROW_LIBHDFS_DIR folder of libhdfs.so, with which `make test-storages` tries HDFS too (JAVA_HOME finds its JVM)

VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
UV_VERSION := 0.13.8
# Programs of other projects that tests run and that come from npm and from Go modules.
S3RVER_VERSION := 3.7.1
AZURITE_VERSION := 3.37.0
FAKE_GCS_VERSION := v1.56.1
ACTIONLINT_VERSION := v1.7.12
EMULATORS := $(CURDIR)/build/emulators
ACTIONLINT := $(shell command -v actionlint || echo build/tools/bin/actionlint)
APT = $(if $(filter-out 0,$(shell id -u)),sudo )apt-get --quiet=2
APT_INSTALL = $(APT) update && DEBIAN_FRONTEND=noninteractive $(APT) install --yes --no-install-recommends
# Not locked, because a lock file names one index, and some networks cannot reach the index of the wheels without CUDA.
TORCH_VERSION := 2.15.0
TRANSFORMERS_VERSION := 5.24.0
#= TORCH options of uv for the wheel of `make test-torch` and `make test-notebooks-torch`; empty for the usual index, with 5 GB of CUDA
TORCH ?= --torch-backend=cpu
NOTEBOOK_ON_TORCH := transformer-model
# Not locked either, because these packages require an older pyarrow than everything else here.
PEERS := arrow-udf==0.3.2 databend-udf==0.2.20
UV := $(shell command -v uv || echo build/tools/bin/uv)
export UV_SYSTEM_CERTS := true
export UV_NO_PROGRESS := 1

venv = .venv$(if $(filter-out $(NEWEST),$(1)),-spark$(subst .,,$(1)))
VENV := $(call venv,$(SPARK))
PYTHON := $(VENV)/bin/python
export SPARK_LOCAL_IP := 127.0.0.1

MVN := ./mvnw --batch-mode --no-transfer-progress
# Maven and the compilers end too soon for the JVM's second compiler to pay off.
#= MAVEN_OPTS options of Maven's JVM
export MAVEN_OPTS ?= -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
named_jar = spark-connector/bundle/target/updraft-spark-$(1)-$(VERSION).jar
jar = $(call named_jar,$(JAR_OF_$(1)))
JARS := $(foreach name,$(JAR_NAMES),$(call named_jar,$(name)))
JAR := $(call jar,$(SPARK))
MAVEN_CENTRAL := https://repo.maven.apache.org/maven2
MAVEN_DEPENDENCY := org.apache.maven.plugins:maven-dependency-plugin:3.8.1
MAVEN_COPY := $(MVN) -q --non-recursive $(MAVEN_DEPENDENCY):copy
HDFS_JARS := org.apache.hadoop:hadoop-client-minicluster:3.5.0 org.junit.jupiter:junit-jupiter-api:5.13.4 org.junit.platform:junit-platform-commons:1.13.4 org.opentest4j:opentest4j:1.3.0
YARN_JARS = $(HDFS_JARS) org.bouncycastle:bcprov-jdk18on:1.82 org.bouncycastle:bcpkix-jdk18on:1.82 org.bouncycastle:bcutil-jdk18on:1.82
TABLES_SCALA := $(lastword $(subst _, ,$(JAR_OF_$(TABLES_SPARK))))
DELTA_JARS := io.delta:delta-spark$(if $(DELTA_FOR_$(TABLES_SPARK)),,_$(TABLES_SPARK))_$(TABLES_SCALA):$(DELTA) io.delta:delta-storage:$(DELTA)
# H2 is the database of a catalog.
TABLE_JARS := $(DELTA_JARS) com.h2database:h2:2.4.240 $(if $(filter none,$(ICEBERG)),,org.apache.iceberg:iceberg-spark-runtime-$(TABLES_SPARK)_$(TABLES_SCALA):$(ICEBERG))
TABLES_DIR := build/tables/$(TABLES_SPARK)-$(DELTA)-$(ICEBERG)
TABLE_CASES := $(if $(filter none,$(ICEBERG)),-k 'not iceberg') tests/tables
FORMAT_JARS := $(DELTA_JARS) org.apache.iceberg:iceberg-spark-runtime-$(TABLES_SPARK)_2.13:$(COMET_ICEBERG) org.apache.datafusion:comet-spark-spark$(TABLES_SPARK)_2.13:$(COMET)
# Spark 3.5 in Scala 2.13: PySpark 3.5 from PyPI contains only jars for Scala 2.12.
SPARK_SCALA_2.13 := build/spark-3.5-scala-2.13
RAPIDS_JAR := build/rapids/rapids-4-spark_2.13-$(RAPIDS).jar
CONNECTOR_SOURCES := $(shell find spark-connector proto/updraft \( -name '*.java' -o -name '*.scala' -o -name 'pom.xml' -o -name '*.proto' -o -name '*.conf' \) -not -path '*/target/*' 2>/dev/null)
REPORTS := build/reports
# `make check-all` also runs the cases that prove the same as others.
EVERYDAY := -m 'not campaign'
PYTEST = $(1)/bin/python -m pytest -q $(if $(STRICT),-p tests.support.strict )--junitxml=$(REPORTS)/$(2).xml

.PHONY: help help-all
LIST = awk -F ':.*$(1) ' '/^$(HASH)$(HASH) /{section = substr($$0, 4)} /^[a-z0-9-]+:.*$(1) /{if (section) printf "\n%s\n", section; section = ""; printf "  %-21s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
HASH := \#
VARIABLES = $(shell sed -n 's/^$(HASH)= \([A-Z_]*\) .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: #+ List the everyday targets
	@echo 'Updraft. Two commands are enough to see it work: make demo, make check.'
	@$(call LIST,$(HASH)$(HASH))
	@echo
	@echo 'Variables: SPARK=$(SPARK) (of $(SPARKS))  PORT=$(PORT)  WORKERS=$(WORKERS)  WRITER_PORT=$(WRITER_PORT)'
	@echo '`make help-all` lists the other targets and variables too.'

help-all: #+ List every target and every variable
	@$(call LIST,$(HASH)[$(HASH)+])
	@printf '\nVariables, as in `make pool PORT=8825`\n'
	@$(foreach name,$(VARIABLES),printf '  %-21s %s%s\n' '$(name)' "$$(sed -n 's/^$(HASH)= $(name) //p' $(firstword $(MAKEFILE_LIST)))" '$(if $($(name)), [$($(name))])';)

## Use
.PHONY: demo demo-kill pool writer connector
demo: setup $(JAR) ## Run the main job on stock PySpark and on Updraft, and write it
	$(PYTHON) -m tests.programs.demo.run --jar $(JAR) $(DEMO)

demo-kill: setup $(JAR) ## Run the same job while a worker is killed every second
	$(PYTHON) -m tests.programs.demo.run --jar $(JAR) --kill-workers $(DEMO)

# A service also listens for probes (admin) and for Prometheus (metrics), at fixed distances from its main port.
ADMIN_OFFSET := 10
METRICS_OFFSET := 1010
FREE_PORTS = $(PYTHON) .ci/free_ports.py '$(1)=$($(1))' 0 $(ADMIN_OFFSET) $(METRICS_OFFSET)
LISTEN = --listen 127.0.0.1:$(1) --admin-listen 127.0.0.1:$$(($(1) + $(ADMIN_OFFSET))) --metrics-listen 127.0.0.1:$$(($(1) + $(METRICS_OFFSET)))
CONFS = printf '\nSpark confs for this %s (Spark %s, Python of %s):\n\n' '$(1)' '$(SPARK)' '$(PYTHON)'; printf '  %-28s  %s\n' spark.jars '$(abspath $(JAR))' spark.sql.extensions io.updraft.spark.UpdraftExtensions $(2); echo

pool: setup $(JAR) ## Run a pool in the foreground, and print its Spark confs
	@$(call FREE_PORTS,PORT)
	@$(call CONFS,pool,spark.updraft.udf.endpoint grpc://127.0.0.1:$(PORT))
	@exec $(VENV)/bin/updraft-server serve $(call LISTEN,$(PORT)) --workers $(WORKERS) --session-functions=unsigned

writer: setup $(JAR) ## Run a writer in the foreground, and print its Spark confs
	@$(call FREE_PORTS,WRITER_PORT)
	@$(call CONFS,writer,spark.updraft.write.endpoint grpc://127.0.0.1:$(WRITER_PORT))
	@printf 'It writes below %s. In a job: df.write.format("updraft-parquet").save(...)\n\n' '$(WRITE_ROOTS)'
	@exec $(VENV)/bin/updraft-writer serve $(call LISTEN,$(WRITER_PORT)) --root $(WRITE_ROOTS)

connector: $(JAR) ## Build the connector's jar, and print its path
	@echo $(abspath $(JAR))

## Check
.PHONY: check check-all summary lint lint-workflows types test-unit test-packages test-writer test-variants test-tables test-formats test-other-tables test-sessions test-connector test-chart test-contract test-e2e list-e2e test-kinds test-workers test-other-scala test-faults test-large-rows test-smoke test-platforms test-storages test-browser test-notebooks test-notebooks-torch images images-gpu push-images join-images check-tag draft-release tools-images tools-browser tools-dashboards tools-storages test-images test-gpu bench-gpu gpu-wheels dashboard-screens status-screen kube-tools e2e-kube test-rapids test-comet attacks faults soak simulate fuzz record-wire audit test-rapids-gpu bench-rapids-gpu rapids-jar-gpu bench-gpu-service bench-gpu-variables
# The stages of `make check`. check.mk runs the stages of FIRST beside BUILD, and the stages of SECOND after BUILD. check-all adds THIRD.
CONNECTOR := spark-connector
# Stages that need no jar are in FIRST, to run while the connector is built. SECOND begins with its longest stages, so that no long
# stage runs alone at the end.
BUILD := test-connector
NEEDED := .venv/.synced
FIRST := test-unit sessions-on-$(NEWEST) test-writer types lint test-packages test-chart
SECOND := e2e-on-$(NEWEST) test-tables services-on-$(NEWEST) test-contract test-faults writes-on-$(NEWEST) workers-on-$(NEWEST) $(addprefix kinds-on-,$(OLDER))
THIRD := $(foreach spark,$(OLDER),e2e-on-$(spark) writes-on-$(spark) services-on-$(spark) sessions-on-$(spark)) $(addprefix workers-on-,$(filter-out 3.5,$(OLDER))) test-workers test-other-scala test-variants test-formats docs-site test-notebooks test-notebooks-torch
include .ci/check.mk

check: run-check ## All that CI runs: the newest Spark in full, a part on the others
check-all: run-check-all ## The same, with every Spark in full
summary: print-summary #+ Count the tests of the last check, and name the stages that failed

lint: .venv/.synced ## Lint, format and import contracts
	@$(BEGIN)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports --no-cache
	.venv/bin/buf lint proto
	.venv/bin/buf format --diff --exit-code proto
	.ci/spdx
	.venv/bin/python .ci/versions.py --check
	.venv/bin/python .ci/project_version.py --check
	.venv/bin/python .ci/chart_settings.py --check
	.venv/bin/python .ci/local_options.py --check
	.venv/bin/python .ci/decorator_options.py --check
	.venv/bin/python .ci/chart_values.py --check
	.venv/bin/python .ci/dashboards.py --check

lint-workflows: $(filter build/%,$(ACTIONLINT)) #+ actionlint over .github/workflows (`make test-unit` checks our own rules and the schemas)
	$(ACTIONLINT) -color

types: .venv/.synced ## Strict types over services, tests and scripts
	@$(BEGIN)
	.venv/bin/mypy

test-unit: .venv/.synced | $(REPORTS) ## Unit tests of the Python packages and of this repository
	@$(call BEGIN,unit)
	$(call PYTEST,.venv,unit) proto/python/tests flight-server/tests deploy/cli/tests tests/audit tests/bench tests/fuzz tests/soak tests/simulation tests/docs tests/platforms/test_units.py tests/platforms/test_compose.py .ci --ignore=flight-server/tests/processes --ignore=flight-server/tests/worker --ignore=flight-server/tests/pool_on_gpu

test-writer: .venv/.synced | $(REPORTS) #+ Unit tests of the writer, its files beside Spark's, its memory
	@$(call BEGIN,writer)
	$(call PYTEST,.venv,writer) $(EVERYDAY) gpu-writer/tests --ignore=gpu-writer/tests/on_gpu

test-variants: .venv/.synced $(call jar,$(NEWEST)) | $(REPORTS) #+ Cases of workers, writer and functions that `make check` leaves out, because other cases take the same path
	@$(call BEGIN,variants)
	$(call PYTEST,.venv,variants) -m campaign flight-server/tests/processes gpu-writer/tests/processes tests/e2e --ignore=flight-server/tests/processes/on_torch

test-tables: $(call venv,$(TABLES_SPARK))/.synced $(call jar,$(TABLES_SPARK)) $(TABLES_DIR)/.fetched | $(REPORTS) #+ Commands on tables of Delta, Iceberg and Hive with functions inside, beside stock
	@$(call BEGIN,tables)
	UPDRAFT_TABLE_JARS=$(TABLES_DIR) $(call PYTEST,$(call venv,$(TABLES_SPARK)),tables) $(EVERYDAY) $(TABLE_CASES)

test-formats: $(call venv,$(TABLES_SPARK))/.synced $(call jar,$(TABLES_SPARK)) $(TABLES_DIR)/.fetched | $(REPORTS) #+ The other scenarios of Delta and Iceberg tables that a writer makes, beside stock
	@$(call BEGIN,formats)
	UPDRAFT_TABLE_JARS=$(TABLES_DIR) $(call PYTEST,$(call venv,$(TABLES_SPARK)),formats) -m campaign $(TABLE_CASES)

test-other-tables: #+ All scenarios on the other Sparks that Delta has a release for (25 minutes)
	$(MAKE) test-tables test-formats TABLES_SPARK=3.5
	$(MAKE) test-tables test-formats TABLES_SPARK=4.0
	$(MAKE) test-tables test-formats TABLES_SPARK=4.2

test-packages: .venv/.synced | $(REPORTS) #+ Build every wheel and install it without the workspace or an index
	@$(call BEGIN,packages)
	UV=$(abspath $(UV)) $(call PYTEST,.venv,packages) tests/packages

test-sessions: sessions-on-$(SPARK) #+ Real workers and the session functions of SPARK

test-e2e: e2e-on-$(SPARK) writes-on-$(SPARK) services-on-$(SPARK) ## Spark with and without Updraft: equal answers

test-workers: setup $(JAR) | $(REPORTS) #+ Everything that runs in Spark's own Python workers (RDDs, streams, data sources), on stock and on a pool
	@$(call BEGIN,all-workers-$(SPARK))
	$(call PYTEST,$(VENV),all-workers-$(SPARK)) tests/workers

# Tests also run without this archive, but their JVMs then need twice the CPU time to start.
CLASSES := build/jvm/spark-$(NEWEST).jsa
$(addsuffix -on-$(NEWEST),e2e services writes workers) test-contract test-faults: | $(CLASSES)
$(CLASSES): tests/support/shared_classes.py .venv/.synced
	.venv/bin/python -m tests.support.shared_classes

test-kinds: kinds-on-$(SPARK) #+ A part of `make test-e2e`: one function of each kind

.SECONDEXPANSION:
$(addprefix sessions-on-,$(SPARKS)): sessions-on-%: $$(call venv,$$*)/.synced | $(REPORTS)
	@$(call BEGIN,sessions-$*)
	$(call PYTEST,$(call venv,$*),sessions-$*) $(if $(filter $(NEWEST),$*),$(EVERYDAY)) flight-server/tests/processes flight-server/tests/worker --ignore=flight-server/tests/processes/on_torch

$(addprefix e2e-on-,$(SPARKS)): e2e-on-%: $$(call venv,$$*)/.synced $$(call jar,$$*) | $(REPORTS)
	@$(call BEGIN,e2e-$*)
	$(call PYTEST,$(call venv,$*),e2e-$*) $(if $(filter $(NEWEST),$*),$(EVERYDAY)) tests/e2e --ignore=tests/e2e/writer $(addprefix --ignore=,$(E2E_SERVICES))

# Each of these tests starts its own services or Spark, so a separate stage can run them beside the other end-to-end tests.
E2E_SERVICES := $(addprefix tests/e2e/test_,$(addsuffix .py,artifacts connect functions_of_two_pools functions_page large_rows limits_of_a_task one_answer services_away several_pools signed_functions times wrong_endpoints))
services-on-3.5: build/spark-3.5-connect/.fetched
$(addprefix services-on-,$(SPARKS)): services-on-%: $$(call venv,$$*)/.synced $$(call jar,$$*) | $(REPORTS)
	@$(call BEGIN,services-$*)
	$(call PYTEST,$(call venv,$*),services-$*) $(E2E_SERVICES)

# PySpark from PyPI contains jars for one Scala, but its Python code also works with the jars for the other.
test-other-scala: .venv-spark35/.synced $(call named_jar,3.5_2.13) $(SPARK_SCALA_2.13)/.fetched | $(REPORTS) #+ The differential suite on Spark 3.5 in Scala 2.13
	@$(call BEGIN,other-scala)
	SPARK_HOME=$(CURDIR)/$(SPARK_SCALA_2.13) UPDRAFT_CONNECTOR_JAR=$(abspath $(call named_jar,3.5_2.13)) $(call PYTEST,.venv-spark35,other-scala) tests/e2e --ignore=tests/e2e/writer $(addprefix --ignore=,$(E2E_SERVICES))

$(addprefix writes-on-,$(SPARKS)): writes-on-%: $$(call venv,$$*)/.synced $$(call jar,$$*) | $(REPORTS)
	@$(call BEGIN,writes-$*)
	$(call PYTEST,$(call venv,$*),writes-$*) tests/e2e/writer

$(addprefix workers-on-,$(SPARKS)): workers-on-%: $$(call venv,$$*)/.synced $$(call jar,$$*) | $(REPORTS)
	@$(call BEGIN,workers-$*)
	$(call PYTEST,$(call venv,$*),workers-$*) $(if $(filter $(NEWEST),$*),$(EVERYDAY)) tests/workers

$(addprefix kinds-on-,$(SPARKS)): kinds-on-%: $$(call venv,$$*)/.synced $$(call jar,$$*) | $(REPORTS)
	@$(call BEGIN,kinds-$*)
	$(call PYTEST,$(call venv,$*),kinds-$*) tests/e2e -m one_of_each

test-connector: | $(REPORTS) #+ Build the connector, its style checks and its Java and Scala tests
	@$(call BEGIN,connector)
	@cd spark-connector && $(MVN) -Pspark-$(JAR_OF_$(NEWEST)) verify spotless:check

test-chart: .venv/.synced | $(REPORTS) ## The Helm chart, against the schemas of each Kubernetes
	@$(call BEGIN,chart)
	$(call PYTEST,.venv,chart) tests/chart

test-contract: setup $(JAR) | $(REPORTS) ## Both sides read the same bytes; any Flight client can call
	@$(call BEGIN,contract-$(SPARK))
	$(call PYTEST,$(VENV),contract-$(SPARK)) tests/contract tests/cli tests/local

list-e2e: setup #+ Count the cases of the differential suite by kind of function
	$(PYTHON) -m pytest -qq --collect-only tests/e2e

test-faults: setup $(JAR) | $(REPORTS) #+ Kill things: no wrong row, no hang
	@$(call BEGIN,faults-$(SPARK))
	$(call PYTEST,$(VENV),faults-$(SPARK)) tests/faults --ignore=tests/faults/table

test-large-rows: setup $(JAR) | $(REPORTS) #+ Rows of 512 MiB through functions and into files, beside stock (11 GB of memory, half an hour)
	UPDRAFT_LARGE_ROW_MIB=512 $(call PYTEST,$(VENV),large-rows) tests/e2e/test_large_rows.py -k travels

test-speculation: setup $(JAR) | $(REPORTS) #+ Spark on two hosts, one of them slow: speculative tasks that write
	$(call PYTEST,$(VENV),speculation-$(SPARK)) tests/speculation

test-platforms: setup $(JAR) build/yarn/.fetched | $(REPORTS) $(filter build/%,$(UV)) #+ The guides for VMs, Spark standalone and YARN, typed as they are written (that for VMs as root)
	UV=$(abspath $(UV)) $(call PYTEST,$(VENV),platforms-$(SPARK)) tests/platforms

test-smoke: setup $(JAR) | $(REPORTS) #+ Run make demo, demo-kill and pool as a user does
	$(call PYTEST,$(VENV),smoke-$(SPARK)) tests/smoke

images images-gpu: IMAGE_LABELS = --label org.opencontainers.image.revision=$(shell git describe --always --dirty --abbrev=40 --exclude='*') $(if $(SOURCE),--label org.opencontainers.image.source=$(SOURCE))
images: ## Build the images of the pool and the writer, with buildah
	buildah build $(BUILDAH) $(IMAGE_LABELS) --build-arg SPARK=$(SPARK) --target pool --tag updraft-pool:$(VERSION) --file deploy/images/Dockerfile .
	buildah build $(BUILDAH) $(IMAGE_LABELS) --target writer --tag updraft-writer:$(VERSION) --file deploy/images/Dockerfile .

images-gpu: #+ Build the images for nodes with NVIDIA GPUs
	buildah build $(BUILDAH) $(IMAGE_LABELS) --build-arg SPARK=$(SPARK) --target pool-gpu --tag updraft-pool-gpu:$(VERSION) --file deploy/images/Dockerfile .
	buildah build $(BUILDAH) $(IMAGE_LABELS) --target writer-gpu --tag updraft-writer-gpu:$(VERSION) --file deploy/images/Dockerfile .

test-images: .venv/.synced | $(REPORTS) #+ Check the images of `make images`: labels, bill of materials, user, size
	$(if $(filter-out 0,$(shell id -u)),buildah unshare )$(call PYTEST,.venv,images) tests/images

image-executors: setup $(JAR) #+ Build two more images for e2e-kube: executors with the jars of SPARK, a pool with the demo's packages
	buildah build $(BUILDAH) --tag updraft-team:$(VERSION) --file deploy/images/Dockerfile.team deploy/images
	buildah build $(BUILDAH) --build-context entrypoint=tests/kube --tag updraft-spark:$(VERSION) --file tests/kube/Dockerfile $(dir $(shell $(PYTHON) -c 'import pyspark; print(pyspark.__file__)'))
	@rm -rf build/images/executor && mkdir -p build/images/executor
	cp $(JAR) spark-connector/python/src/updraft_spark/bin/updraft-python build/images/executor
	buildah build $(BUILDAH) --build-arg SPARK_IMAGE=localhost/updraft-spark:$(VERSION) --tag updraft-executor:$(VERSION) --file deploy/images/Dockerfile.executor build/images/executor

push-images: #+ Push what `make images` and `make image-executors` built to the registry IMAGES, tagged VERSION and SUFFIX
	VERSION=$(VERSION) IMAGES=$(IMAGES) PUSH='$(PUSH)' SUFFIX='$(SUFFIX)' .ci/images push

join-images: #+ Join the images pushed with the suffixes -sparkSPARK-amd64 and -arm64 into one; digests in build/images/checksums.txt
	VERSION=$(VERSION) SPARK=$(SPARK) NEWEST=$(NEWEST) IMAGES=$(IMAGES) PUSH='$(PUSH)' .ci/images join

check-tag: #+ Check that TAG fits the version in pyproject.toml
	@$(if $(filter v$(VERSION),$(TAG)),true,$(error the tag is '$(TAG)', and pyproject.toml has version $(VERSION): v$(VERSION) is needed))

draft-release: check-tag #+ Make a draft of the release TAG from the files in dist, with gh
	gh release create v$(VERSION) --verify-tag --draft --title 'Updraft $(VERSION)' --notes 'What is new: CHANGELOG.md' $$(find dist -maxdepth 1 -type f)

tools-images: #+ Install what `make images` and `make test-images` need, with apt
	@command -v buildah >/dev/null || { $(APT_INSTALL) buildah; }
	@command -v containerd >/dev/null || { $(APT_INSTALL) containerd; }

tools-browser: #+ Install what `make test-browser` needs, with apt
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { $(APT_INSTALL) chromium chromium-driver; }

tools-dashboards: #+ Install what `make test-dashboards` needs, with apt
	@command -v prometheus >/dev/null || { $(APT_INSTALL) prometheus; }

tools-storages: #+ Install what `make test-storages` needs in build/emulators, with npm and Go
	npm install --silent --global --prefix $(EMULATORS) s3rver@$(S3RVER_VERSION) azurite@$(AZURITE_VERSION)
	GOBIN=$(EMULATORS)/bin go install github.com/fsouza/fake-gcs-server@$(FAKE_GCS_VERSION)

test-browser: .venv/.synced docs-site | $(REPORTS) #+ The status page of a pool and the documentation site in a real browser (chromium and its driver)
	@command -v chromium chromedriver >/dev/null || { echo 'error: chromium or chromedriver is not on PATH: make tools-browser'; exit 1; }
	@$(UV) sync --quiet --locked --inexact --group browser
	$(call PYTEST,.venv,browser) tests/browser

test-notebooks: .venv/.synced $(JAR) | $(REPORTS) #+ Run the notebooks of docs/examples from scratch, and compare what they print
	@$(call BEGIN,notebooks)
	$(call PYTEST,.venv,notebooks) tests/notebooks -k 'not $(NOTEBOOK_ON_TORCH)'

test-notebooks-torch: .venv-torch/.synced $(JAR) | $(REPORTS) #+ The same for the notebook that needs torch
	@$(call BEGIN,notebooks-torch)
	$(call PYTEST,.venv-torch,notebooks-torch) tests/notebooks -k '$(NOTEBOOK_ON_TORCH)'

test-storages: export PATH := $(EMULATORS)/bin:$(PATH)
test-storages: .venv/.synced $(if $(ARROW_LIBHDFS_DIR),build/hdfs/.fetched) | $(REPORTS) #+ A writer that stores its files in emulators of S3, Google Cloud Storage, Azure and (ARROW_LIBHDFS_DIR) HDFS
	@command -v s3rver azurite-blob >/dev/null || { echo 'error: s3rver or azurite-blob is not on PATH: make tools-storages'; exit 1; }
	@command -v fake-gcs-server >/dev/null || { echo 'error: fake-gcs-server is not on PATH: make tools-storages'; exit 1; }
	@test -z "$(ARROW_LIBHDFS_DIR)" -o -n "$${JAVA_HOME:-}" || { echo 'error: JAVA_HOME is not set: libhdfs finds the JVM by it'; exit 1; }
	@$(UV) sync --quiet --locked --inexact --group storages
	$(call PYTEST,.venv,storages) tests/storages

test-dashboards: setup $(JAR) | $(REPORTS) #+ Every query of the dashboards and alerts, asked of a real Prometheus beside a real job
	@command -v prometheus >/dev/null || { echo 'error: prometheus is not on PATH: make tools-dashboards'; exit 1; }
	$(call PYTEST,$(VENV),dashboards) tests/dashboards

dashboard-screens: setup $(JAR) #+ Draw the dashboards' pictures in docs from what a real Prometheus answers
	@command -v prometheus >/dev/null || { echo 'error: prometheus is not on PATH: make tools-dashboards'; exit 1; }
	$(PYTHON) -m tests.programs.dashboard_screens

status-screen: .venv/.synced #+ Take the picture of a busy pool's status page for docs, in chromium
	@command -v chromium chromedriver >/dev/null || { echo 'error: chromium or chromedriver is not on PATH: make tools-browser'; exit 1; }
	@$(UV) sync --quiet --locked --inexact --group browser
	$(PYTHON) -m tests.programs.status_screen

kube-tools: setup #+ Build the programs with which e2e-kube scales pools and simulates nodes, from Go modules (half an hour, once)
	@command -v go >/dev/null || { echo 'error: go is not on PATH: these programs are built from their modules'; exit 1; }
	$(PYTHON) -m tests.kube.tools

e2e-kube: setup $(JAR) | $(REPORTS) #+ The chart on the cluster of KUBECONFIG, whose nodes have the images of the registry IMAGES
	@test -n "$(KUBECONFIG)" || { echo 'error: KUBECONFIG names no cluster'; exit 1; }
	UPDRAFT_IMAGES=$(IMAGES) UPDRAFT_SUFFIX='$(SUFFIX)' $(call PYTEST,$(VENV),kube) tests/kube --timeout 600 -W 'ignore::urllib3.exceptions.InsecureRequestWarning'

test-rapids: .venv-rapids/.synced $(call jar,$(RAPIDS_SPARK)) $(RAPIDS_JAR) | $(REPORTS) #+ The RAPIDS Accelerator beside Updraft, without a GPU (fetches 1 GB once)
	UPDRAFT_CONNECTOR_JAR=$(call jar,$(RAPIDS_SPARK)) UPDRAFT_RAPIDS_JAR=$(RAPIDS_JAR) $(call PYTEST,.venv-rapids,rapids) tests/rapids --ignore=tests/rapids/on_gpu

test-comet: $(call venv,$(TABLES_SPARK))/.synced $(call jar,$(TABLES_SPARK)) build/formats/$(DELTA)-$(COMET_ICEBERG)-$(COMET)/.fetched | $(REPORTS) #+ DataFusion Comet beside Updraft: equal answers, and no rows in between
	UPDRAFT_COMET_JAR=$(wildcard build/formats/$(DELTA)-$(COMET_ICEBERG)-$(COMET)/comet-*.jar) $(call PYTEST,$(call venv,$(TABLES_SPARK)),comet) tests/comet

attacks: $(VENV)/.synced | $(REPORTS) #+ Attacks by hostile functions and clients on a real pool and writer (run it as an ordinary user too)
	$(call PYTEST,$(VENV),attacks) tests/attacks

faults: $(VENV)/.synced | $(REPORTS) #+ Cause each fault of a table, and check that nothing is left behind (some rows need root)
	$(call PYTEST,$(VENV),faults-table) tests/faults/table $(FAULTS)

soak: setup $(JAR) #+ Spark jobs whose every row is checked while something is killed every second
	$(PYTHON) -m tests.programs.soak $(SOAK)

simulate: SIMULATE ?= --minutes 10
simulate: .venv/.synced #+ A simulated cluster under faults of random seeds (SIMULATE="--seed N" replays one)
	.venv/bin/python -m tests.simulation $(SIMULATE)

audit: bills #+ Licences of what is shipped, known vulnerabilities, bills of materials in build/audit
	.venv/bin/python -m tests.programs.audit.run --python build/audit/python.cdx.json --java build/audit/java.cdx.json $(AUDIT)

record-wire: setup $(JAR) #+ Record this release's messages on the wire, which later releases are compared with
	$(PYTHON) -m tests.programs.record_wire

test-torch: .venv-torch/.synced | $(REPORTS) #+ Functions that train with torch on the CPU
	$(call PYTEST,.venv-torch,torch) flight-server/tests/processes/on_torch

fuzz: .venv/.synced #+ Send hostile bytes to every parser of input from clients, workers and archives
	@$(if $(findstring --guided,$(FUZZ)),$(UV) sync --quiet --locked --inexact --group fuzz)
	.venv/bin/python -m tests.programs.fuzz $(FUZZ)

## On a GPU
#= GPU_PYTHON Python of `make test-gpu` and `make bench-gpu`
GPU_PYTHON ?= .venv-gpu/bin/python
#= GPU_PYTHON_VERSION Python for which `make gpu-wheels` collects wheels
GPU_PYTHON_VERSION ?= 3.12
#= GPU_ARCH architecture whose machine code `make gpu-wheels` keeps, such as 90 for an H200; empty keeps all
GPU_ARCH ?=
#= GPU_HAS packages that the machine with the GPU has, which `make gpu-wheels` leaves out
GPU_HAS ?=
#= CONNECTOR_JAR connector of `make test-rapids-gpu`
CONNECTOR_JAR ?= $(call jar,$(RAPIDS_SPARK))
# Classes of the accelerator for pyspark 4.1.3, the version of .venv-rapids.
RAPIDS_SHIM := 413
#= PART_MIB size of each part of `make gpu-wheels`, in MiB
PART_MIB ?= 60

test-gpu: $(if $(filter .venv-gpu/%,$(GPU_PYTHON)),.venv-gpu/.synced) | $(REPORTS) #+ The writer's GPU encoder beside that of the CPU, pools on a GPU, then bench-gpu; fails without a GPU
	$(GPU_PYTHON) -m pytest -q --junitxml=$(REPORTS)/gpu.xml gpu-writer/tests/on_gpu --timeout 600
	$(GPU_PYTHON) -m pytest -q --junitxml=$(REPORTS)/gpu-pool.xml flight-server/tests/pool_on_gpu --timeout 600
	@$(MAKE) --no-print-directory bench-gpu-service BENCH="--seconds 1"
	@$(MAKE) --no-print-directory bench-gpu BENCH="--rows 2000000 --repeat 3"

bench-gpu-service: $(if $(filter .venv-gpu/%,$(GPU_PYTHON)),.venv-gpu/.synced) #+ Raw bytes that a writer service takes in a second, by clients and encoder
	$(GPU_PYTHON) -m tests.programs.bench.writer_service $(BENCH)

bench-gpu: $(if $(filter .venv-gpu/%,$(GPU_PYTHON)),.venv-gpu/.synced) #+ Raw bytes encoded in a second on a GPU, beside the CPU and what copies allow
	PYTHONPATH=gpu-writer/tests $(GPU_PYTHON) -m tests.programs.bench.writer_gpu $(BENCH)

bench-gpu-variables: $(if $(filter .venv-gpu/%,$(GPU_PYTHON)),.venv-gpu/.synced) #+ Eight files at once with each of libcudf's pinned-memory settings
	$(GPU_PYTHON) -m tests.programs.bench.writer_variables $(BENCH)

gpu-wheels: | $(filter build/%,$(UV)) #+ Collect what test-gpu and bench-gpu need on a machine without a network, in parts
	UV=$(UV) .ci/gpu-wheels build/gpu $(PART_MIB) $(GPU_PYTHON_VERSION) '$(GPU_ARCH)' '$(GPU_HAS)'

test-rapids-gpu: | $(REPORTS) #+ The RAPIDS Accelerator on a GPU beside Updraft: answers and plans, then bench-rapids-gpu (needs RAPIDS_JAR and CONNECTOR_JAR)
	UPDRAFT_RAPIDS_MODE=executeOnGPU UPDRAFT_CONNECTOR_JAR=$(CONNECTOR_JAR) UPDRAFT_RAPIDS_JAR=$(RAPIDS_JAR) $(GPU_PYTHON) -m pytest -q --junitxml=$(REPORTS)/rapids-gpu.xml tests/rapids/on_gpu
	@$(MAKE) --no-print-directory bench-rapids-gpu BENCH="--scale 0.25 --repeat 1"

bench-rapids-gpu: #+ Crossing between GPU stages and a pool; a query written by RAPIDS, Updraft and Spark
	UPDRAFT_CONNECTOR_JAR=$(CONNECTOR_JAR) UPDRAFT_RAPIDS_JAR=$(RAPIDS_JAR) $(GPU_PYTHON) -m tests.programs.bench.rapids_gpu $(BENCH)

rapids-jar-gpu: $(RAPIDS_JAR) #+ The RAPIDS Accelerator for one Spark and one GPU, for a machine without a network
	python3 .ci/prune_gpu_code.py $(RAPIDS_JAR) build/rapids/rapids-sm$(or $(GPU_ARCH),90).jar --arch $(or $(GPU_ARCH),90) --leave-out '^spark(?!$(RAPIDS_SHIM)/)[0-9]+(db[0-9]+)?/'

## Measure
.PHONY: bench-udf bench-workers bench-writer bench-formats bench-functions bench-aggregates bench-functions-page bench-healing bench-owners bench-threads bench-far bench-sides bench-signed bench-tenants bench-models bench-scale bench-against bench-progress bench-check bench-writer-check bench-page bench-formats-page bench-writer-page bench-writer-sink bench-receiving
bench-udf: setup $(JAR) #+ UDFs against every configuration of stock PySpark
	$(PYTHON) -m tests.programs.bench.udf --jar $(JAR) $(BENCH)

bench-writer: .venv/.synced $(call jar,$(NEWEST)) #+ The writer against Spark's own, over quotas, its encoder against others
	@$(UV) sync --quiet --locked --inexact --group bench
	.venv/bin/python -m tests.programs.bench.writer --jar $(call jar,$(NEWEST)) $(BENCH)

bench-formats: $(call venv,$(TABLES_SPARK))/.synced $(call jar,$(TABLES_SPARK)) build/formats/$(DELTA)-$(COMET_ICEBERG)-$(COMET)/.fetched #+ Delta and Iceberg tables by their own writers, Updraft's and Comet's
	$(call venv,$(TABLES_SPARK))/bin/python -m tests.programs.bench.formats --jars build/formats/$(DELTA)-$(COMET_ICEBERG)-$(COMET) $(BENCH)

bench-functions: .venv/.synced .venv-peers/.synced #+ Registered functions beside arrow-udf's, databend-udf's and a bare Flight server
	.venv/bin/python -m tests.programs.bench.functions --peers-python .venv-peers/bin/python $(BENCH)

bench-aggregates: setup $(JAR) #+ Registered SQL aggregates beside grouped pandas_udfs of stock: bytes through the shuffle, time
	$(PYTHON) -m tests.programs.bench.aggregates $(BENCH)

bench-healing: setup #+ How soon a pool recovers after one of its processes was killed, compared with the promise
	$(PYTHON) -m tests.programs.bench.healing $(BENCH)

bench-threads: setup $(JAR) #+ CPU seconds of queries by thread and process, with a UDF and without
	$(PYTHON) -m tests.programs.bench.threads $(BENCH)

bench-far: setup $(JAR) #+ Queries with a UDF on a pool that is a few milliseconds away
	$(PYTHON) -m tests.programs.bench.far $(BENCH)

bench-workers: setup $(JAR) #+ Spark's own Python workers on stock and on a pool: RDDs, data sources, streaming state
	$(PYTHON) -m tests.programs.bench.python_workers $(BENCH)

bench-owners: setup #+ Cost of the first exchange of a new owner, and of an owner that returns
	$(PYTHON) -m tests.programs.bench.owners $(BENCH)

bench-sides: setup $(JAR) #+ How a query's CPU time divides between executors and pool, beside stock
	$(PYTHON) -m tests.programs.bench.sides $(BENCH)

bench-signed: setup #+ Cost of a signed exchange, compared with an unsigned exchange
	PYTHONPATH=flight-server/tests $(PYTHON) -m tests.programs.bench.signed $(BENCH)

bench-tenants: setup #+ How long a quiet tenant waits alone, and among 256 busy tenants
	$(PYTHON) -m tests.programs.bench.tenants $(BENCH)

bench-models: setup #+ Speed and memory of a model with and without joining rows of many exchanges
	$(PYTHON) -m tests.programs.bench.models $(BENCH)

bench-scale: setup #+ Ten thousand simulated executors, calibrated on a small measured pool: writes docs/scale.md (20 minutes)
	$(PYTHON) -m tests.simulation.scale $(BENCH)

bench-against: setup $(JAR) #+ UDFs of this tree beside those of the checkout BASE, in pairs
	$(PYTHON) -m tests.programs.bench.against --base $(BASE) $(BENCH)

bench-warm: setup #+ Duration of a known owner's exchange, compared with the pool of the checkout BASE, in pairs
	$(PYTHON) -m tests.programs.bench.warm --base $(BASE) $(BENCH)

bench-progress: setup $(JAR) #+ What a notebook's progress line costs a light query
	$(PYTHON) -m tests.programs.bench.progress $(BENCH)

bench-check: setup #+ Check that the results of bench-udf meet the target of every case
	@$(PYTHON) -m tests.programs.bench.check

bench-writer-check: setup #+ Check that the results of bench-writer keep every promise
	@$(PYTHON) -m tests.programs.bench.writer_check

bench-page: setup #+ Write docs/benchmarks.md from the results of bench-udf
	@$(PYTHON) -m tests.programs.bench.page

bench-functions-page: setup #+ Write docs/benchmarks-functions.md from the results of bench-functions
	@$(PYTHON) -m tests.programs.bench.functions_page

bench-formats-page: .venv/.synced #+ Write docs/benchmarks-tables.md from the results of bench-formats
	@.venv/bin/python -m tests.programs.bench.formats_page

bench-writer-sink: setup #+ Cost of a row group's way to the storage without the encoding, with a stand-in for the GPU
	@$(PYTHON) -m tests.programs.bench.writer_sink $(BENCH)

bench-receiving: setup #+ CPU seconds of a writer for each GB that it receives, by threads
	@$(PYTHON) -m tests.programs.bench.writer_receiving $(BENCH)

bench-writer-page: setup #+ Write docs/benchmarks-writer.md from the results of bench-writer
	@$(PYTHON) -m tests.programs.bench.writer_page

## Develop
.PHONY: dist test-dist bills build-requirements
dist: $(JARS) bills ## Build everything that a user installs into dist/
	.venv/bin/python .ci/dist.py --uv $(UV)

test-dist: .venv/.synced | $(REPORTS) #+ Install what `make dist` built into empty environments, without this checkout, and use it
	UV=$(abspath $(UV)) $(call PYTEST,.venv,dist) tests/dist

bills: .venv/.synced #+ Write CycloneDX bills of materials of both languages to build/audit
	@mkdir -p build/audit
	$(UV) export --quiet --locked --preview-features sbom-export --format cyclonedx1.5 --no-default-groups --all-packages --all-extras --output-file build/audit/python.cdx.json >/dev/null
	cd spark-connector && $(MVN) -q -Pspark-$(JAR_OF_$(NEWEST)) -DskipTests -pl bundle -am org.cyclonedx:cyclonedx-maven-plugin:makeBom -DoutputDirectory=$(CURDIR)/build/audit

build-requirements: #+ Lock what builds the wheels
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate .ci/build-requirements.in --output-file .ci/build-requirements.txt

.PHONY: setup setup-all versions chart-schemas format docs docs-site docs-links publish-site notebooks clean
setup: $(VENV)/.synced ## Install the Python environment of SPARK
setup-all: $(foreach spark,$(SPARKS),$(call venv,$(spark))/.synced) #+ Install the Python environments of every Spark

versions: #+ Write what follows from spark-versions.toml and from the version in pyproject.toml, and lock
	python3.11 .ci/versions.py
	python3.11 .ci/project_version.py
	$(UV) lock --quiet

chart-schemas: .venv/.synced #+ Fetch the definitions of the custom resources that the chart makes, as .ci/crds.py pins them
	.venv/bin/python .ci/crds.py

format: .venv/.synced ## Format everything
	.venv/bin/ruff check --fix-only -q .
	.venv/bin/ruff format .
	.venv/bin/buf format -w proto
	cd spark-connector && $(MVN) -q spotless:apply

docs: .venv/.synced $(JAR) ## Write the reference pages from the settings' declarations
	.venv/bin/python .ci/chart_settings.py
	.venv/bin/python .ci/local_options.py
	.venv/bin/python .ci/decorator_options.py
	.venv/bin/python .ci/chart_values.py
	.venv/bin/python .ci/dashboards.py
	.venv/bin/updraft-server docs > docs/reference/server.md
	.venv/bin/updraft-writer docs > docs/reference/writer.md
	java -cp '$(JAR):.venv/lib/python3.11/site-packages/pyspark/jars/*' io.updraft.spark.config.GenerateDocs docs/reference

docs-site: .venv-docs/.synced #+ Build the documentation site in build/docs/site; a broken link is an error
	@$(BEGIN)
	.venv-docs/bin/python .ci/docs_site.py --source '$(SOURCE)' --site '$(SITE)'

docs-links: .venv-docs/.synced #+ Ask every other site that the documentation links to
	.venv-docs/bin/python .ci/docs_site.py --source '$(SOURCE)' --builder linkcheck

publish-site: docs-site #+ Add the site of this version to the branch gh-pages of SOURCE, with gh's login
	gh auth setup-git
	.venv-docs/bin/python .ci/publish_site.py --remote '$(SOURCE)' --site '$(SITE)'

notebooks: .venv/.synced .venv-torch/.synced $(JAR) #+ Run the notebooks of docs/examples, and save what they print
	.venv-torch/bin/python -m tests.programs.notebooks

clean: ## Remove everything that was built here
	rm -rf build .venv .venv-* proto/python/src/updraft/v1
	find spark-connector -name target -type d -prune -exec rm -rf {} +

$(REPORTS):
	@mkdir -p $@

build/tools/bin/uv:
	@command -v python3.11 >/dev/null || { echo 'error: python3.11 is not on PATH; install Python 3.11'; exit 1; }
	python3.11 -m venv build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

build/tools/bin/actionlint:
	@command -v go >/dev/null || { echo 'error: actionlint is not on PATH, and neither is go, which builds it: install one of them'; exit 1; }
	GOBIN=$(CURDIR)/build/tools/bin go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

PYTHON_INPUTS := pyproject.toml uv.lock proto/python/pyproject.toml proto/python/hatch_build.py flight-server/pyproject.toml gpu-writer/pyproject.toml deploy/cli/pyproject.toml $(wildcard proto/updraft/v1/*.proto)

.venv/.synced: $(PYTHON_INPUTS) | $(filter build/%,$(UV))
	$(UV) sync --quiet --locked --reinstall-package updraft-core
	@touch $@

.venv-gpu/.synced: $(PYTHON_INPUTS) | $(filter build/%,$(UV))
	UV_PROJECT_ENVIRONMENT=.venv-gpu $(UV) sync --quiet --locked --reinstall-package updraft-core --group gpu
	$(UV) pip install --quiet --python .venv-gpu torch==$(TORCH_VERSION)
	@touch $@

.venv-docs/.synced: pyproject.toml uv.lock | $(filter build/%,$(UV))
	UV_PROJECT_ENVIRONMENT=.venv-docs $(UV) sync --quiet --locked --only-group docs
	@touch $@

.venv-torch/.synced: $(PYTHON_INPUTS) | $(filter build/%,$(UV))
	UV_PROJECT_ENVIRONMENT=.venv-torch $(UV) sync --quiet --locked --reinstall-package updraft-core
	$(UV) pip install --quiet --python .venv-torch torch==$(TORCH_VERSION) transformers==$(TRANSFORMERS_VERSION) $(TORCH)
	@touch $@

.venv-peers/.synced: Makefile | $(filter build/%,$(UV))
	$(UV) venv --quiet --clear --python .venv/bin/python .venv-peers
	$(UV) pip install --quiet --python .venv-peers $(PEERS)
	@touch $@

.venv-%/.synced: $(PYTHON_INPUTS) | $(filter build/%,$(UV))
	UV_PROJECT_ENVIRONMENT=$(@D) $(UV) sync --quiet --locked --reinstall-package updraft-core --no-group spark$(subst .,,$(NEWEST)) --group $*
	@touch $@

$(JARS): spark-connector/bundle/target/updraft-spark-%-$(VERSION).jar: $(CONNECTOR_SOURCES)
	@java -version 2>&1 | grep -q 'version "\(17\|21\)' || { echo 'error: a JDK 17 is needed: java -version says' "$$(java -version 2>&1 | head -1)"; exit 1; }
	cd spark-connector && $(MVN) -q -Pspark-$* -Dmaven.test.skip -DskipTests package
	@touch $@

# HDFS and YARN for tests, of the Hadoop version that the newest PySpark contains.
build/hdfs/.fetched: FOREIGN_JARS = $(HDFS_JARS)
build/yarn/.fetched: FOREIGN_JARS = $(YARN_JARS)
# Delta and Iceberg, for tests on their tables.
$(TABLES_DIR)/.fetched: FOREIGN_JARS = $(TABLE_JARS)
# The server of Spark Connect, which PySpark from PyPI contains only since 4.0. Any 3.5 release of the server fits all 3.5 clients.
build/spark-3.5-connect/.fetched: FOREIGN_JARS = org.apache.spark:spark-connect_2.12:3.5.7
# Delta, Iceberg and Comet, for a benchmark.
build/formats/$(DELTA)-$(COMET_ICEBERG)-$(COMET)/.fetched: FOREIGN_JARS = $(FORMAT_JARS)
build/hdfs/.fetched build/yarn/.fetched build/spark-3.5-connect/.fetched $(TABLES_DIR)/.fetched build/formats/$(DELTA)-$(COMET_ICEBERG)-$(COMET)/.fetched:
	cd spark-connector && $(foreach jar,$(FOREIGN_JARS),$(MAVEN_COPY) -Dartifact=$(jar) -DoutputDirectory=$(CURDIR)/$(@D) &&) true
	@touch $@

# Maven Central has Spark's jars for both Scalas. The suite's JDBC tables need Derby.
$(SPARK_SCALA_2.13)/.fetched: spark = $(shell .venv-spark35/bin/python -c 'import pyspark; print(pyspark.__version__)')
$(SPARK_SCALA_2.13)/.fetched: FOREIGN_JARS = org.apache.spark:spark-sql_2.13:$(spark) org.apache.derby:derby:10.14.2.0
$(SPARK_SCALA_2.13)/.fetched: .venv-spark35/.synced
	@rm -rf $(@D) && mkdir -p $(@D)
	cd spark-connector && $(foreach jar,$(FOREIGN_JARS),$(MAVEN_COPY) -Dartifact=$(jar) -DoutputDirectory=$(CURDIR)/$(@D)/jars &&) true
	cd spark-connector && $(MAVEN_COPY) -Dartifact=$(firstword $(FOREIGN_JARS)):pom -DoutputDirectory=$(CURDIR)/$(@D)
	cd spark-connector && $(MVN) -q --file $(CURDIR)/$(@D)/spark-sql_2.13-$(spark).pom $(MAVEN_DEPENDENCY):copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D)/jars
	ln -s $(CURDIR)/.venv-spark35/lib/python3.11/site-packages/pyspark/bin $(@D)/bin
	@touch $@

$(RAPIDS_JAR):
	@mkdir -p $(@D)
	curl --fail --silent --show-error --location --output $@.part $(MAVEN_CENTRAL)/com/nvidia/rapids-4-spark_2.13/$(RAPIDS)/$(@F)
	@echo "$$(curl --fail --silent --show-error --location $(MAVEN_CENTRAL)/com/nvidia/rapids-4-spark_2.13/$(RAPIDS)/$(@F).sha1)  $@.part" | sha1sum --check --quiet
	@mv $@.part $@
