"""Brokers and programs shared by the tests of this folder.

Starting Apache Kafka takes seconds, so one node serves a whole module. It runs during
that module only, because two nodes would overload a small machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.protocol.errors import ErrorCode
from broker.protocol.records.batch import CODEC_MASK, split_batches
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.differences import Allowance, differences, read_table, summary
from tests.kafka.java_tools import VERSIONS, KafkaPrograms, Ran
from tests.kafka.peer import Peer, Talk
from tests.kafka.requests import init_producer_id
from tests.live.broker_process import BrokerProcess

# Settings of both brokers that differ from Kafka's defaults.
SETTINGS = {
    "auto_create_topics_enable": "false",
    "message_max_bytes": "100000",
    "group_min_session_timeout_ms": "1000",
    "num_partitions": "2",
    # The tests' records are old; Kafka would delete them half a minute after its start.
    "log_retention_ms": "-1",
}


@pytest.fixture(scope="session")
def programs_of() -> Iterator[Callable[[str], KafkaPrograms]]:
    """Yield a function that returns the programs of a version."""
    found: dict[str, KafkaPrograms] = {}

    def of_version(version: str) -> KafkaPrograms:
        if version not in found:
            found[version] = KafkaPrograms(version)
        return found[version]

    yield of_version
    for programs in found.values():
        programs.close()


@pytest.fixture(scope="session", params=VERSIONS)
def programs(
    request: pytest.FixtureRequest, programs_of: Callable[[str], KafkaPrograms]
) -> KafkaPrograms:
    """Return Apache Kafka's command-line programs of each version."""
    return programs_of(request.param)


class Tools:
    """Kafka's programs of one version, run against a Doorkeeper broker."""

    def __init__(
        self, programs: KafkaPrograms, broker: BrokerProcess, data: Path
    ) -> None:
        self.bootstrap = broker.bootstrap
        self.offline = programs.succeed
        self.stop_broker = broker.stop
        self._programs = programs
        self._data = data
        is_old = programs.version < "4"
        # Kafka 4.4 warns about the former name.
        self.formatter_option = "--property" if is_old else "--formatter-property"

    def run(self, program: str, *arguments: str, stdin: str = "") -> Ran:
        """Run a program against the broker; any exit status is accepted."""
        where: tuple[str, ...] = ("--bootstrap-server", self.bootstrap)
        if program == "kafka-producer-perf-test":
            where = ()
        first, rest = arguments[:1], arguments[1:]
        if first and not first[0].startswith("--"):
            # A subcommand precedes all options.
            arguments = (*first, *where, *rest)
        else:
            arguments = (*where, *arguments)
        return self._programs.run(program, *arguments, stdin=stdin)

    def __call__(self, program: str, *arguments: str, stdin: str = "") -> Ran:
        """Run a program that must succeed."""
        ran = self.run(program, *arguments, stdin=stdin)
        assert ran.status == 0, (program, arguments, ran)
        return ran

    def create(self, topic: str, partitions: int, *configs: str) -> None:
        """Create a topic without a tool, since each program costs a second."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        config = dict(each.split("=", 1) for each in configs)
        new = NewTopic(topic, partitions, 1, config=config)
        admin.create_topics([new])[topic].result(20)

    def produce(
        self,
        topic: str,
        lines: list[str],
        codec: str = "none",
        *,
        idempotent: bool = False,
    ) -> None:
        """Produce each line as a record without a tool."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
            }
        )
        for line in lines:
            producer.produce(topic, line.encode())
        assert producer.flush(20) == 0

    def consume(self, topic: str, count: int, *, group: str = "any") -> list[str]:
        """Consume from the beginning."""
        return self(
            *("kafka-console-consumer", "--topic", topic, "--from-beginning"),
            *("--max-messages", str(count), "--timeout-ms", "20000"),
            *("--group", group),
        ).lines

    def files(self, pattern: str) -> list[Path]:
        """Return the matching files of the broker."""
        return sorted(self._data.glob(pattern))

    def segment_files(self, topic: str, suffix: str) -> list[Path]:
        """Return the files of partition 0, oldest first."""
        return self.files(f"{topic}-0/*.{suffix}")

    def broker_file_sizes(self, topic: str) -> dict[str, int]:
        """Return the size of each partition's log by directory name."""
        return {
            directory.name: sum(file.stat().st_size for file in directory.glob("*.log"))
            for directory in self._data.glob(f"{topic}-*")
        }

    def codecs_on_disk(self, topic: str) -> set[int]:
        """Return the codecs of the batches of partition 0."""
        return {
            header.attributes & CODEC_MASK
            for file in self.segment_files(topic, "log")
            for header, _ in split_batches(file.read_bytes())
        }


@pytest.fixture(scope="session")
def tools(
    programs: KafkaPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    """Yield programs of one version with a broker shared by all tests."""
    directory = tmp_path_factory.mktemp(f"tools-{programs.version}")
    broker = BrokerProcess(directory)
    yield Tools(programs, broker, directory / "data")
    broker.close()


@pytest.fixture
def own_broker(programs: KafkaPrograms, tmp_path: Path) -> Iterator[Tools]:
    """Yield programs of one version with a broker that the test may stop."""
    broker = BrokerProcess(tmp_path)
    yield Tools(programs, broker, tmp_path / "data")
    broker.close()


class Both:
    """Apache Kafka and Doorkeeper, each receiving the same requests."""

    def __init__(
        self, kafka: ApacheKafka, ours: BrokerProcess, peer: type[Peer] = Peer
    ) -> None:
        self._peer = peer
        self._ports = {"Apache Kafka": kafka.port, "Doorkeeper": ours.port}
        self.allowed = read_table()
        # Used rows of the table, and the names of all requests ("FETCH v12").
        self.used: set[Allowance] = set()
        self.asked: set[str] = set()

    def wait_ready(self) -> None:
        """Wait until both serve producer ids; Kafka's controller is slow to do so."""
        for name, port in self._ports.items():
            peer = self._peer(name, port)
            while init_producer_id(peer).error_code is not ErrorCode.none:
                time.sleep(0.05)
            peer.close()

    def compare(self, talk: Talk) -> None:
        """Run ``talk`` with both brokers and compare all responses field by field."""
        answers = []
        for name, port in self._ports.items():
            peer = self._peer(name, port)
            try:
                talk(peer)
            finally:
                peer.close()
            answers.append(peer.answers)
            asked = peer.asked
        assert answers[0], "nothing was asked"
        self.asked.update(what for what, _ in answers[0])
        left = []
        for difference in differences(*answers, asked):
            rows = [row for row in self.allowed if row.covers(difference)]
            self.used.update(rows)
            if not rows:
                left.append(difference)
        if left:
            pytest.fail(summary(left), pytrace=False)


@pytest.fixture(scope="session")
def both(
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    """Yield Apache Kafka 3.9 and Doorkeeper with the same settings."""
    directory = tmp_path_factory.mktemp("both")
    with beside_kafka(programs_of(VERSIONS[0]), directory, **SETTINGS) as both:
        yield both


@contextmanager
def beside_kafka(
    programs: KafkaPrograms,
    directory: Path,
    peer: type[Peer] = Peer,
    **settings: str,
) -> Iterator[Both]:
    """Run Apache Kafka and Doorkeeper with the same settings.

    ``peer`` is the client class for both.
    """
    kafka = ApacheKafka(programs, directory, **settings)
    try:
        ours = BrokerProcess(
            directory,
            doorkeeper_kafka_defaults="3.9" if programs.version < "4" else "4.4",
            node_id="1",
            offsets_topic_num_partitions="1",
            # Without an authorizer Kafka accepts controller requests on every listener.
            doorkeeper_controller_listeners="PLAINTEXT",
            # Some settings have no effect on Doorkeeper, which logs a warning.
            doorkeeper_log_level="error",
            **settings,
        )
        both = Both(kafka, ours, peer)
        both.wait_ready()
        yield both
        ours.close()
    finally:
        kafka.stop()


def same_answers(talk: Talk) -> Callable[[Both], None]:
    """Make a test that runs ``talk`` with both brokers and compares the responses."""

    def test(both: Both) -> None:
        both.compare(talk)

    test.__name__ = talk.__name__
    test.__doc__ = talk.__doc__
    return test
