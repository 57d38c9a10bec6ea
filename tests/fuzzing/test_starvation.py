"""Bounded slices, timer steps and reader rounds, whatever the request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from planes import Task
from simulation.virtual_time.determinism import (
    CostPerClass,
    VirtualClock,
    run_virtual,
    spender,
)
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)
from tests.fuzzing.frames import COMMANDS, OF_CLIENTS
from tests.fuzzing.known import is_known
from tests.fuzzing.onslaught import Onslaught, onslaught
from tests.fuzzing.starvation import StarvationProbe
from tests.virtual import hosting
from tests.virtual.kafka import ask

# The first request of a kind also builds its codec: some 10,000 calls, once.
BUDGET_CALLS = 20_000
# Lines of loops: about five milliseconds.
BUDGET_ITEMS = 60_000
# A frame of a megabyte, decoded and encoded again.
BUDGET_BYTES = 8 << 20
# Creating or deleting a partition touches about ten files.
BUDGET_DEVICE_CALLS = 100
PARTITIONS = 1_000


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> StarvationProbe:
    """Return a probe that watches every broker of an onslaught."""
    probe = StarvationProbe()

    def watched(clock: VirtualClock, costs: CostPerClass) -> Callable[[Task], None]:
        trio.lowlevel.add_instrument(probe)
        return probe.watching(spender(clock, costs))

    monkeypatch.setattr(hosting, "spender", watched)
    return probe


def beyond_the_budget(probe: StarvationProbe) -> dict[str, int]:
    """Return each excess over the budget, by API or task."""
    return {
        f"{kind} of {what}": count
        for kind, most, budget in (
            ("calls", probe.most_calls, BUDGET_CALLS),
            ("items", probe.most_items, BUDGET_ITEMS),
            ("bytes", probe.most_bytes, BUDGET_BYTES),
            ("device calls", probe.most_device_calls, BUDGET_DEVICE_CALLS),
        )
        for what, count in most.items()
        if count > budget
    }


@pytest.mark.parametrize("keys", [OF_CLIENTS, COMMANDS], ids=["clients", "controllers"])
def test_no_extreme_request_keeps_the_others_waiting(
    probe: StarvationProbe, keys: Sequence[ApiKey]
) -> None:
    with probe.counting(octets=True):
        try:
            onslaught(1, keys, 6 * len(keys))
        except BaseException as error:
            if not is_known(error):
                raise
    seen = {key.name for key in keys} & set(probe.most_calls)
    assert len(seen) > 0.8 * len(keys)
    assert beyond_the_budget(probe) == {}


@pytest.mark.slow
def test_no_request_about_many_partitions_keeps_the_others_waiting(
    probe: StarvationProbe,
) -> None:
    async def main(clock: VirtualClock) -> None:
        world = Onslaught(clock, 1)
        probe.device_calls = lambda: world.storage.faults.calls
        async with world.serving():
            stream = world.connect()
            with probe.counting():
                for key, version, fields in about_all_partitions():
                    await ask(stream, key, version, **fields)
                    # Count the deferred work of the request, too.
                    await trio.sleep(1)
                await trio.sleep(120)

    run_virtual(main, seed=1)
    assert probe.most_calls["FETCH"] > PARTITIONS
    assert beyond_the_budget(probe) == {}


@pytest.mark.slow
def test_no_frame_of_a_hundred_megabytes_keeps_the_others_waiting(
    probe: StarvationProbe,
) -> None:
    """The largest frame that ``socket.request.max.bytes`` allows by default.

    Its memory is allocated at once, and its records are copied once.
    """

    async def main(clock: VirtualClock) -> None:
        world = Onslaught(
            clock,
            1,
            socket_request_max_bytes=str(100 << 20),
            queued_max_request_bytes="-1",
        )
        async with world.serving():
            stream = world.connect()
            topics = [new_topic("big", 100)]
            await ask(
                stream, ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=SECONDS_30
            )
            with probe.counting(octets=True):
                for key, version, fields in of_a_hundred_megabytes():
                    await ask(stream, key, version, **fields)

    run_virtual(main, seed=1)
    once = (100 << 20) + BUDGET_BYTES
    assert max(probe.most_bytes.values()) < once
    probe.most_bytes.clear()
    assert beyond_the_budget(probe) == {}


def of_a_hundred_megabytes() -> Iterator[tuple[ApiKey, int, dict[str, Any]]]:
    """Yield a request of many large batches, and one with an oversized batch."""
    megabyte = batch(bytes(1_000_000))
    each = {("big", index): megabyte for index in range(100)}
    yield ApiKey.PRODUCE, 8, produce_fields(each)
    yield ApiKey.PRODUCE, 8, produce_fields({("big", 0): batch(bytes(100_000_000))})


def about_all_partitions() -> Iterator[tuple[ApiKey, int, dict[str, Any]]]:
    """Yield the life cycle of a topic, each step one request for all its partitions."""
    name, indexes = "big", range(PARTITIONS)

    def each(**fields: Any) -> list[dict[str, Any]]:
        partitions = [{"partition_index": index, **fields} for index in indexes]
        return [{"name": name, "partitions": partitions}]

    everywhere = [(name, index) for index in indexes]
    topics = [new_topic(name, PARTITIONS)]
    yield ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": SECONDS_30}
    yield ApiKey.METADATA, 12, {"topics": [{"name": name}]}
    yield ApiKey.PRODUCE, 8, produce_fields(dict.fromkeys(everywhere, batch(b"x")))
    yield ApiKey.FETCH, 11, fetch_fields(dict.fromkeys(everywhere, 0))
    yield ApiKey.LIST_OFFSETS, 5, {"topics": each(timestamp=-1)}
    group = {"group_id": "g"}
    joined = {**group, "generation_id_or_member_epoch": -1}
    committed = each(committed_offset=1)
    yield ApiKey.OFFSET_COMMIT, 7, {**joined, "topics": committed}
    wanted = [{"name": name, "partition_indexes": list(indexes)}]
    yield ApiKey.OFFSET_FETCH, 7, {**group, "topics": wanted}
    for kind, resource, key in ((2, name, "segment.ms"), (4, "", "log.segment.bytes")):
        altered = {"name": key, "value": "1000000", "config_operation": 0}
        named = {"resource_type": kind, "resource_name": resource}
        resources = [{**named, "configs": [altered]}]
        yield ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources}
    yield ApiKey.OFFSET_DELETE, 0, {**group, "topics": each()}
    yield ApiKey.OFFSET_COMMIT, 7, {**joined, "topics": committed}
    yield ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}
    yield ApiKey.DELETE_TOPICS, 5, {"topic_names": [name], "timeout": SECONDS_30}
