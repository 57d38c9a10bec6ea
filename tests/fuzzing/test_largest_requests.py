"""Bounded slices for requests with many items, in every API and version.

Calls and lines are counted, so the outcome is the same on every machine. The budget
covers the first slices of a request, which may build its codec.

The slow tests play requests of 20,000 items, the most that clients may send, and of
equal items. They count the bytes that a slice allocates instead of lines, since
counting lines would take too long.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio

from broker.handling.api_registry import APIS
from broker.log.steps import BlockingCall
from broker.log.upkeep.periodic_task import CallsHere, Done
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import CLIENT_ITEMS_MAX
from planes import Task
from simulation.virtual_time.apis import receive_frame
from simulation.virtual_time.determinism import (
    CostPerClass,
    VirtualClock,
    run_virtual,
    spender,
)
from tests.broker.apis.requests import SECONDS_30, new_topic, update_metadata
from tests.fuzzing.frames import OF_CLIENTS
from tests.fuzzing.largest import Largest, largest
from tests.fuzzing.onslaught import Onslaught
from tests.fuzzing.starvation import StarvationProbe
from tests.virtual import hosting
from tests.virtual.kafka import ask

SETTINGS = {
    "auto_create_topics_enable": "false",
    "socket_request_max_bytes": str(100 << 20),
    "queued_max_request_bytes": "-1",
}
ITEMS = 2_400
# A loop without preemption points that executes 13 lines per item exceeds this.
LINES_MAX = 30_000
CALLS_MAX = 8_000
# The largest table of all items (1.3 MB for 20,000), and its copy as it grows.
BYTES_MAX = 4 << 20


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> StarvationProbe:
    """Return a probe that watches every broker of an onslaught."""
    probe = StarvationProbe()

    def watched(clock: VirtualClock, costs: CostPerClass) -> Callable[[Task], None]:
        trio.lowlevel.add_instrument(probe)
        return probe.watching(spender(clock, costs))

    def start(calls: CallsHere, call: BlockingCall, done: Done) -> None:
        started(calls, probe.uncounted(call), done)

    started = CallsHere.start
    monkeypatch.setattr(CallsHere, "start", start)
    monkeypatch.setattr(hosting, "spender", watched)
    return probe


async def prepared(world: Onslaught, partitions: int) -> None:
    """Announce the topic ``t`` with ``partitions`` partitions."""
    stream = world.connect()
    topics = [new_topic("t", 1)]
    await ask(stream, ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=SECONDS_30)
    keys = {"coordinator_keys": ["g"], "key_type": 0}
    await ask(stream, ApiKey.FIND_COORDINATOR, 4, **keys)
    (topic,) = update_metadata(("t", 0), leader=0, replicas=(0,)).topic_states
    (state,) = topic.partition_states
    known = world.broker.metadata_cache.topic("t")
    assert known is not None
    for index in range(1, partitions):
        known.partitions[index] = dataclasses.replace(state, partition_index=index)
    await stream.aclose()


async def exchange(world: Onslaught, sent: Largest) -> None:
    """Send a request; wait up to 5 s for its response."""
    stream = world.connect()
    # Some requests are refused by a closed connection: JoinGroup has its own bound.
    with contextlib.suppress(EOFError, trio.BrokenResourceError), trio.move_on_after(5):
        await stream.send_all(sent.frame)
        await receive_frame(stream)
    await stream.aclose()
    # Count the deferred work of the request, too.
    await trio.sleep(1)


def beyond(
    probe: StarvationProbe,
    key: ApiKey,
    versions: Iterable[int],
    items: int = ITEMS,
    *,
    counted: str = "lines",
) -> list[str]:
    """Return the slices that exceed the budget of calls or of ``counted``."""
    found = []

    async def main(clock: VirtualClock) -> None:
        world = Onslaught(clock, 1, **SETTINGS)
        async with world.serving():
            await prepared(world, items)
            for version in versions:
                for sent in largest(key, version, items, equal_too=counted != "lines"):
                    for most in probe.most_calls, probe.most_items, probe.most_bytes:
                        most.clear()
                    with probe.counting(
                        items=counted == "lines", octets=counted == "bytes"
                    ):
                        await exchange(world, sent)
                    calls = max(probe.most_calls.values(), default=0)
                    lines = max(probe.most_items.values(), default=0)
                    size = max(probe.most_bytes.values(), default=0)
                    if calls > CALLS_MAX or lines > LINES_MAX or size > BYTES_MAX:
                        found.append(
                            f"{sent}: {calls} calls, {lines} lines, {size} bytes"
                        )

    run_virtual(main, seed=1)
    return found


@pytest.mark.parametrize("key", OF_CLIENTS, ids=lambda key: key.name)
def test_no_slice_of_a_large_request_is_long(
    probe: StarvationProbe, key: ApiKey
) -> None:
    assert beyond(probe, key, [APIS[key].served[-1]]) == []


@pytest.mark.slow
@pytest.mark.parametrize("key", OF_CLIENTS, ids=lambda key: key.name)
def test_no_slice_of_a_large_request_of_an_older_version_is_long(
    probe: StarvationProbe, key: ApiKey
) -> None:
    older = APIS[key].served[:-1]
    assert beyond(probe, key, older, counted="bytes") == []


@pytest.mark.slow
@pytest.mark.parametrize("key", OF_CLIENTS, ids=lambda key: key.name)
def test_no_slice_of_a_largest_request_is_long(
    probe: StarvationProbe, key: ApiKey
) -> None:
    last = APIS[key].served[-1]
    assert beyond(probe, key, [last], CLIENT_ITEMS_MAX, counted="bytes") == []


def held_up_everybody(count: int) -> dict[ApiKey, tuple[int, dict[str, Any]]]:
    """Return requests that once blocked the event loop for half a second or more."""
    names = [{"name": f"unknown-{number}"} for number in range(count)]
    partitions = [
        {"partition_index": index, "committed_offset": 1, "committed_metadata": ""}
        for index in range(count)
    ]
    commit = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "unknown", "partitions": partitions}],
    }
    leaders = [{"broker_id": n, "host_name": "h", "port": 1} for n in range(count)]
    return {
        ApiKey.METADATA: (4, {"topics": names}),
        ApiKey.OFFSET_COMMIT: (7, commit),
        ApiKey.LEADER_AND_ISR: (4, {"live_leaders": leaders, "broker_epoch": -1}),
    }


@pytest.mark.parametrize("key", held_up_everybody(0), ids=lambda key: key.name)
def test_a_request_that_held_up_everybody_is_served_in_steps(
    probe: StarvationProbe, key: ApiKey
) -> None:
    seen = []

    async def main(clock: VirtualClock) -> None:
        world = Onslaught(clock, 1, **SETTINGS)
        async with world.serving():
            await prepared(world, 1)
            stream = world.connect()
            for count in (40, ITEMS):
                version, fields = held_up_everybody(count)[key]
                probe.most_items.clear()
                with probe.counting(items=True):
                    await ask(stream, key, version, **fields)
                seen.append(probe.most_items[key.name])

    run_virtual(main, seed=1)
    assert max(seen) <= LINES_MAX
