"""Loading a partition of ``__consumer_offsets`` beside requests, in the whole broker.

A client waits for at most one piece of the load. A controller is answered at once,
since its LeaderAndIsr only schedules the load. `test_upkeep_whole_broker` and
`tests/broker/requests/test_internal_tasks.py` cover every policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from broker.cluster.partition import ALL_REPLICAS
from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import OffsetKey, offset_record
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.records.batch_records import new_batch
from broker.protocol.records.codecs import NONE, ZSTD
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import encode_request
from simulation.virtual_time.determinism import spender
from tests.broker.apis.requests import (
    SECONDS_30,
    START_MS,
    batch,
    leader_and_isr,
    new_topic,
    produce_fields,
    update_metadata,
)
from tests.fuzzing.starvation import StarvationProbe
from tests.virtual import hosting
from tests.virtual.kafka import SETTINGS, answer, ask, kafka
from tests.virtual.world import MS, World, in_world

# A piece is one step.
STEP_NS = 250_000
# A request's latency, including a step that begins while it is read.
OWN_NS = STEP_NS + MS // 10
STEP_CALLS = 4_000
TOPICS = ("t", "gone")


def settings(scheduler: str) -> dict[str, str]:
    return {
        **SETTINGS,
        "doorkeeper.scheduler": scheduler,
        "log.cleaner.enable": "false",
    }


def commits(count: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield the records of commits by a hundred groups, to two topics alternately."""
    for number in range(count):
        key = OffsetKey(f"g{number % 100}", TOPICS[number % 2], number // 200)
        record = offset_record(key, OffsetCommit(number, 0, "", START_MS))
        yield START_MS, record.key, record.value


class Loads:
    """A broker that loses its partitions of ``__consumer_offsets``, and leads again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = world.application.broker
        self.epoch = 0
        self.index = 0

    async def prepare(self, count: int, per_batch: int, codec: int) -> None:
        self.client = self.world.connect()
        self.controller = self.world.connect(self.world.control_listener())
        topics = [new_topic(name) for name in TOPICS]
        await ask(
            self.client, ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=SECONDS_30
        )
        await ask(self.client, ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
        groups = [f"g{number}" for number in range(100)]
        by_partition: dict[int, list[Any]] = {0: [], 1: []}
        for record in commits(count):
            group = record[1][4:].split(b"\0", 1)[0].decode()
            assert group in groups
            by_partition[self.broker.groups.partition_for(group)].append(record)
        for index, records in by_partition.items():
            led = self.broker.replicas.leader(self.key(index))
            for start in range(0, len(records), per_batch):
                some = records[start : start + per_batch]
                led.append(new_batch(some, codec=codec), ALL_REPLICAS, START_MS)

    def key(self, index: int) -> TopicPartition:
        return TopicPartition("__consumer_offsets", index)

    async def lead(self, leader: int) -> None:
        """Send a LeaderAndIsr for each of both partitions, as the controller."""
        self.epoch += 1
        for index in (0, 1):
            command = leader_and_isr(
                self.key(index),
                leader=leader,
                leader_epoch=self.epoch,
                isr=(leader,),
                replicas=(0, 1),
                topic_id=self.broker.replicas.partitions[self.key(index)].topic_id,
            )
            await self.tell(ApiKey.LEADER_AND_ISR, 4, command)

    async def tell(self, key: ApiKey, version: int, command: Any) -> Any:
        body = command.to_wire(version)
        await self.controller.send_all(encode_request(key, version, -1, "it", body))
        return await answer(self.controller, key, version)

    async def move_away_and_back(self) -> None:
        await self.lead(1)
        await self.lead(0)

    def is_loading(self) -> bool:
        return self.broker.groups.loading.next_ns() is not None

    async def fetched(self, group: str) -> tuple[ErrorCode, dict[str, int]]:
        """Return the error, and the number of committed partitions of each topic."""
        got = await ask(
            self.client, ApiKey.OFFSET_FETCH, 7, group_id=group, topics=None
        )
        return got.error_code, {it.name: len(it.partitions) for it in got.topics}


async def beside_a_load(world: World) -> tuple[list[int], list[int], dict[str, int]]:
    """Return latencies of Produces and LeaderAndIsrs during the load."""
    loads = Loads(world)
    await loads.prepare(8_000, 1, NONE)
    await loads.move_away_and_back()
    assert loads.is_loading()
    produced, commanded = [], []
    number = 0
    while loads.is_loading():
        number += 1
        began_ns = world.clock.now_ns()
        if number % 4:
            fields = produce_fields({("t", 0): batch(b"x")}, 1)
            await ask(loads.client, ApiKey.PRODUCE, 9, **fields)
            produced.append(world.clock.now_ns() - began_ns)
        else:
            command = leader_and_isr(("t", 0), leader=0, leader_epoch=number)
            await loads.tell(ApiKey.LEADER_AND_ISR, 4, command)
            commanded.append(world.clock.now_ns() - began_ns)
        # Not a multiple of a piece, so requests arrive at all phases of a piece.
        await trio.sleep(0.0013)
    error, topics = await loads.fetched("g0")
    assert (error, topics) == (ErrorCode.none, {"t": 40})
    return produced, commanded, dict(world.server.laws.totals())


@pytest.mark.parametrize(
    "scheduler", ["fifo", "las", "planes", "planes-lending", "priority", "wfq"]
)
def test_no_request_waits_for_more_than_one_piece_of_a_load(scheduler: str) -> None:
    produced, commanded, broken_laws = in_world(
        beside_a_load,
        settings(scheduler),
        application=kafka,
        slices_ns={"group": STEP_NS},
    )
    assert len(produced) > 20
    assert max(produced) <= STEP_NS + OWN_NS
    assert max(commanded) <= STEP_NS + OWN_NS
    assert not any(broken_laws.values()), broken_laws


@pytest.mark.parametrize(
    ("count", "per_batch", "codec"),
    [
        (10_000, 1, NONE),
        (20_000, 10_000, ZSTD),
        pytest.param(200_000, 1, NONE, marks=pytest.mark.search),
        pytest.param(200_000, 100_000, ZSTD, marks=pytest.mark.search),
    ],
)
def test_no_slice_of_a_load_is_long(
    monkeypatch: pytest.MonkeyPatch, count: int, per_batch: int, codec: int
) -> None:
    probe = StarvationProbe()

    def watched(clock: Any, costs: Any) -> Any:
        trio.lowlevel.add_instrument(probe)
        return probe.watching(spender(clock, costs))

    monkeypatch.setattr(hosting, "spender", watched)

    async def scenario(world: World) -> None:
        loads = Loads(world)
        await loads.prepare(count, per_batch, codec)
        await loads.move_away_and_back()
        with probe.counting():
            while loads.is_loading():
                fields = produce_fields({("t", 0): batch(b"x")}, 1)
                await ask(loads.client, ApiKey.PRODUCE, 9, **fields)
        error, topics = await loads.fetched("g1")
        assert (error, topics) == (ErrorCode.none, {"gone": count // 200})

    in_world(scenario, settings("fifo"), application=kafka)
    assert probe.most_calls["group"] > 100
    assert probe.most_calls["group"] < STEP_CALLS, probe.most_calls


def test_commands_do_not_wait_for_a_load_and_a_deletion_is_not_lost() -> None:
    async def scenario(world: World) -> None:
        loads = Loads(world)
        await loads.prepare(8_000, 1, NONE)
        for _ in range(3):
            await loads.lead(1)
            error, _ = await loads.fetched("g1")
            assert error is ErrorCode.not_coordinator
            await loads.lead(0)
            assert loads.is_loading()
        error, _ = await loads.fetched("g1")
        assert error is ErrorCode.coordinator_load_in_progress
        gone = update_metadata(("gone", 0), leader=-2, leader_epoch=100)
        await loads.tell(ApiKey.UPDATE_METADATA, 6, gone)
        assert loads.is_loading()
        await trio.sleep(10)
        assert not loads.is_loading()
        for group in ("g0", "g1"):
            error, topics = await loads.fetched(group)
            assert error is ErrorCode.none
            assert topics.get("t", 0) == (40 if group == "g0" else 0)
            assert topics.get("gone", 0) == 39 * (group == "g1")
        loads.broker.check()

    in_world(scenario, settings("priority"), application=kafka)
