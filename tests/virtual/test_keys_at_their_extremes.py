"""Every key at the ends of its range: refused by its name, or served normally.

A whole broker in virtual time is started with each value that a key accepts. It
creates, fills, reads, compacts and trims logs, keeps a group's offsets, runs for an
hour, and has its data after a restart. Too many clock reads fail the test, since they
indicate a timer that is always due. Logged errors fail it, too.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
import trio

from broker.assembly import assemble
from broker.cluster.topic_configs import TOPIC_KEYS
from broker.config import KEYS, BrokerConfig, Key
from broker.config.alterable import is_alterable
from broker.disk.memory import MemoryStorage
from broker.handling.kafka_apis import KafkaApis
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode
from simulation.virtual_time.determinism import VirtualClock
from simulation.virtual_time.memory_network import MemoryStream
from tests.broker.apis.requests import (
    SECONDS_30,
    START_MS,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
    values_of,
)
from tests.virtual.extremes_of_keys import is_taken, values_for
from tests.virtual.kafka import ask
from tests.virtual.world import in_world

NONE = ErrorCode.none
# A hundred times the clock reads of any valid value.
ASKED_MAX: Final = 20_000_000
# The scenario itself takes an hour.
PATIENCE_S: Final = 7200
SETTINGS: Final = {
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "1",
    # The samples are not used.
    "doorkeeper.record.samples.ms": "60000",
}
# Keys that need more than one broker without sockets.
ELSEWHERE: Final = {"doorkeeper.metrics.port", "zookeeper.connect"}
READ: Final = sorted(
    name for name, key in KEYS.items() if not key.inert and name not in ELSEWHERE
)
ALTERABLE: Final = [name for name in READ if is_alterable(name)]
# Keys whose extremes shut clients out, as their descriptions state.
SHUT_OUT: Final = {
    "connections.max.idle.ms",
    "doorkeeper.admission.deadline.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "socket.request.max.bytes",
}
# The bounds set by other keys, as wide as possible.
WIDE: Final = {
    f"group.consumer.{each}.ms": {
        f"group.consumer.min.{each}.ms": "1",
        f"group.consumer.max.{each}.ms": str(2**31 - 1),
    }
    for each in ("heartbeat.interval", "session.timeout")
}
REFUSALS: Final = {
    # A compacted topic accepts no record without a key.
    "log.cleanup.policy": ErrorCode.invalid_record,
    "log.message.timestamp.after.max.ms": ErrorCode.invalid_timestamp,
    "log.message.timestamp.before.max.ms": ErrorCode.invalid_timestamp,
    "log.message.timestamp.difference.max.ms": ErrorCode.invalid_timestamp,
    "log.segment.bytes": ErrorCode.record_list_too_large,
    "message.max.bytes": ErrorCode.message_too_large,
}

Scenario = Callable[[Any], Awaitable[None]]


class Spins(BaseException):
    """The clock is read endlessly."""


@pytest.fixture(autouse=True)
def _counted_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise in a task that reads the clock endlessly."""
    asked = itertools.count()
    read, trios = VirtualClock.now_ns, VirtualClock._now_s

    def count() -> None:
        if next(asked) > ASKED_MAX:
            raise Spins

    def now_ns(self: VirtualClock) -> int:
        count()
        return read(self)

    def now_s(self: VirtualClock) -> float:
        count()
        return trios(self)

    monkeypatch.setattr(VirtualClock, "now_ns", now_ns)
    monkeypatch.setattr(VirtualClock, "_now_s", now_s)


class Subject:
    """A broker on a disk, over several starts."""

    def __init__(self, name: str, settings: dict[str, str]) -> None:
        self.name = name
        self.settings = {**SETTINGS, **WIDE.get(name, {}), **settings}
        self.storage = MemoryStorage()
        self.kept: list[bytes] = []

    def live(self, *scenarios: Scenario) -> None:
        """Start, run scenarios, stop; raise `ConfigError` if the start is refused."""

        def application(config: BrokerConfig, clock: VirtualClock, _: object) -> Any:
            return KafkaApis(
                assemble(
                    config,
                    storage=self.storage,
                    now_ns=clock.now_ns,
                    now_ms=lambda: START_MS + clock.now_ms(),
                    rng=random.Random(5),
                )
            )

        async def life(world: Any) -> None:
            for scenario in scenarios:
                await scenario(world)
            world.application.broker.check()
            assert not world.application.broker.maintenance.failures
            assert not any(it.failures for it in world.application.broker.duties)

        in_world(life, self.settings, application=application)

    async def use(self, world: Any) -> None:
        """Send the requests of clients for an hour."""
        with trio.move_on_after(PATIENCE_S) as patience:
            try:
                await self._use(world, world.connect())
            except (EOFError, trio.BrokenResourceError):
                assert self.name in SHUT_OUT
        assert not patience.cancelled_caught or self.name in SHUT_OUT

    async def _use(self, world: Any, stream: MemoryStream) -> None:
        compacted = [("cleanup.policy", "compact")]
        fields = {
            "topics": [new_topic("t", 2), new_topic("c", 1, configs=compacted)],
            "timeout": SECONDS_30,
        }
        told = await ask(stream, ApiKey.CREATE_TOPICS, 7, **fields)
        allowed = {NONE, ErrorCode.topic_already_exists}
        assert {it.error_code for it in told.topics} <= allowed, told
        for number in range(3):
            value = b"%d" % (len(self.kept) + number)
            await self._produce(stream, value, world.clock.now_ms())
            await trio.sleep(0.5)
        await self._fetch(stream)
        await stream.aclose()
        world.clock.jump(3_600_000_000_000)
        await trio.sleep(1)
        await self._fetch(world.connect())

    async def _produce(self, stream: MemoryStream, value: bytes, now_ms: int) -> None:
        sent = batch(value, timestamp_ms=START_MS + now_ms)
        fields = produce_fields({("t", 0): sent}, -1)
        told = await ask(stream, ApiKey.PRODUCE, 8, **fields)
        (code,) = (it.partition_responses[0].error_code for it in told.responses)
        if code is NONE:
            self.kept.append(value)
        else:
            assert code is REFUSALS.get(self.name), code

    async def _fetch(self, stream: MemoryStream) -> None:
        """Check that acknowledged records exist, unless retention removed them."""
        offsets = {("t", 0): 0}
        told = await ask(stream, ApiKey.FETCH, 11, **fetch_fields(offsets))
        row = told.responses[0].partitions[0]
        if row.error_code is ErrorCode.offset_out_of_range:
            assert "retention" in self.name
            return
        assert row.error_code is NONE
        if "compression" in self.name:
            return
        found = [value for _, value in values_of(row.records)]
        # A response may cover one segment only; its records are contiguous and ordered.
        first = self.kept.index(found[0]) if found else 0
        assert found == self.kept[first : first + len(found)]
        assert found or not self.kept or "retention" in self.name


def rounds(key: Key[Any]) -> Iterator[list[str]]:
    """Yield groups of values, each tried on one broker: refused ones, then accepted.

    Refused values change nothing, so one broker can refuse them all. Strings that the
    key parses to one value form a group; the broker then runs with the last of them.
    """
    refused: list[str] = []
    taken: defaultdict[str, list[str]] = defaultdict(list)
    for value in values_for(key):
        if is_taken(key, value):
            taken[repr(key.read(value))].append(value)
        else:
            refused.append(value)
    for tried in (refused, *taken.values()):
        if tried:
            print(f"{key.name}={tried!r}")
            yield tried


def assert_silent(caplog: pytest.LogCaptureFixture, tried: list[str]) -> None:
    told = [it.getMessage() for it in caplog.records if it.levelno >= logging.ERROR]
    assert not told, (tried, told)


def refusal(start: Callable[..., object], *arguments: Any) -> str:
    """Return the error message of a refused start, or an empty string."""
    try:
        start(*arguments)
    except ConfigError as fault:
        print("  ", fault)
        return str(fault)
    return ""


@pytest.mark.parametrize("name", READ)
def test_a_start_is_refused_by_the_name_of_the_key_or_serves(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    served = 0
    for tried in rounds(KEYS[name]):
        for value in tried:
            subject = Subject(name, {name: value})
            refused = refusal(BrokerConfig.load, None, subject.settings)
            assert not refused or name in refused, value
        refused = refused or refusal(subject.live, subject.use)
        if refused:
            assert name in refused, tried
        else:
            served += 1
            # Alterable keys are tested with a restart below.
            if name not in ALTERABLE:
                subject.live(subject.use)
        assert_silent(caplog, tried)
    # A JAAS line without a SASL listener is always refused.
    assert served or name == "sasl.jaas.config"


def assert_told(row: Any, key: Key[Any], name: str, value: str) -> None:
    """Assert that an accepted value has no error, and another is refused by name."""
    print("  ", value, row.error_code, row.error_message)
    if row.error_code is NONE:
        assert is_taken(key, value), value
    else:
        assert name in row.error_message, value


@pytest.mark.parametrize("name", ALTERABLE)
def test_an_alteration_is_refused_by_the_name_of_the_key_or_served_on(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart must not fail because of an altered value.

    The next alteration follows that restart. A broker that may keep clients out is
    altered once.
    """
    subject = Subject(name, {})
    for tried in rounds(KEYS[name]):

        async def alter(world: Any, tried: list[str] = tried) -> None:
            for value in tried:
                config = {"name": name, "config_operation": 0, "value": value}
                resource = {
                    "resource_type": 4,
                    "resource_name": "0",
                    "configs": [config],
                }
                told = await ask(
                    world.connect(),
                    ApiKey.INCREMENTAL_ALTER_CONFIGS,
                    1,
                    resources=[resource],
                )
                (row,) = told.responses
                assert_told(row, KEYS[name], name, value)

        subject.live(subject.use, alter, subject.use)
        if name in SHUT_OUT:
            subject.live(subject.use)
            subject = Subject(name, {})
        assert_silent(caplog, tried)
    subject.live(subject.use)
    assert_silent(caplog, tried)


@pytest.mark.parametrize("name", sorted(TOPIC_KEYS))
def test_a_topics_config_is_refused_by_its_name_or_served(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic in use has the last of the equal strings."""
    key = TOPIC_KEYS[name]
    allowed = next((it.name for it in key.broker_keys if it.name in REFUSALS), name)
    for tried in rounds(key.key):
        subject = Subject(allowed, {})

        async def create(world: Any, tried: list[str] = tried) -> None:
            for left, value in enumerate(reversed(tried)):
                topic = new_topic(f"t{left or ''}", 2, configs=[(name, value)])
                told = await ask(
                    world.connect(),
                    ApiKey.CREATE_TOPICS,
                    7,
                    topics=[topic],
                    timeout=SECONDS_30,
                )
                (row,) = told.topics
                assert_told(row, key.key, name, value)

        subject.live(create, subject.use)
        subject.live(subject.use)
        assert_silent(caplog, tried)
