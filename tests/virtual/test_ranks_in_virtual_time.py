"""Ranks of continuations and lock holders in the whole broker.

A request in purgatory is completed in another request's slice or by the timer. Its
continuation must run at its own rank and be billed to its own flow. A lock holder
inherits the rank of its waiters.
"""

import pytest
import trio

from broker.cluster.delayed.delayed_fetch import DelayedFetch
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import encode_request
from broker.requests.purgatory import PIECE
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    leader_and_isr,
    new_topic,
    produce_fields,
    update_metadata,
)
from tests.virtual.kafka import (
    SETTINGS,
    answer,
    ask,
    ask_nothing,
    create_topic,
    kafka,
)
from tests.virtual.world import SLICE_NS, in_world

WIDE = 20
CROWD = 200
EVERYTHING = {"topics": None, "allow_auto_topic_creation": False}
FETCH, COMPLETER, MIDDLE = 1, 2, 3


def pages(count):
    return {("t", index): batch(b"x" * 50) for index in range(count)}


def settings(scheduler, **levels):
    return {
        **SETTINGS,
        "doorkeeper.scheduler": scheduler,
        "doorkeeper.priority.ageing.ms": "0",
        "doorkeeper.class.levels": ",".join(f"{k}:{v}" for k, v in levels.items()),
    }


async def a_produce_completes_a_fetch(world):
    """A fetch waits for records, a wide produce appends them, a metadata arrives."""
    consumer, producer, others = (world.connect() for _ in range(3))
    await create_topic(producer, WIDE)
    async with trio.open_nursery() as nursery:
        wanted = {("t", 0): 0}
        fields = fetch_fields(wanted, max_wait_ms=60_000)
        nursery.start_soon(ask_for(consumer, ApiKey.FETCH, 11, FETCH, fields))
        await trio.sleep(0.01)
        fields = produce_fields(pages(WIDE))
        nursery.start_soon(ask_for(producer, ApiKey.PRODUCE, 8, COMPLETER, fields))
        # During the produce, after its append to partition 0.
        await trio.sleep(5.5 * SLICE_NS / 1e9)
        topics = {"topics": None, "allow_auto_topic_creation": False}
        nursery.start_soon(ask_for(others, ApiKey.METADATA, 5, MIDDLE, topics))
    return counted(world)


def counted(world):
    """Return the measured requests by number; set-up has number -1."""
    return {number: it for number, it in world.tasks.items() if number >= 0}


def ask_for(stream, key, version, number, fields):
    async def run():
        await ask(stream, key, version, number, **fields)

    return run


def order(requests):
    return sorted(requests, key=lambda number: requests[number].remote_done_ns)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        # A fetch of the lowest level continues after the produce and metadata.
        ({"produce": 1, "metadata": 2, "fetch": 5}, [COMPLETER, MIDDLE, FETCH]),
        # A fetch of the highest level preempts the produce that has completed it.
        ({"produce": 5, "metadata": 4, "fetch": 1}, [FETCH, MIDDLE, COMPLETER]),
        # A fetch between the two preempts the produce, but runs after metadata.
        ({"produce": 5, "metadata": 1, "fetch": 3}, [FETCH, MIDDLE, COMPLETER]),
    ],
)
def test_a_completed_fetch_goes_on_at_its_own_level(levels, expected):
    requests = in_world(
        a_produce_completes_a_fetch, settings("priority", **levels), application=kafka
    )
    assert order(requests) == expected
    assert requests[FETCH].level == levels["fetch"]


async def a_produce_meets_a_crowd(world):
    """Two hundred consumers wait for one partition, then one record completes all."""
    producer, controller = world.connect(), world.connect()
    await create_topic(producer, 1)
    consumers = [world.connect() for _ in range(CROWD)]
    dispatcher, tried = world.server.dispatcher, []
    look = DelayedFetch.try_key

    def try_key(delayed, key):
        tried.append(world.clock.now_ns())
        return look(delayed, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DelayedFetch, "try_key", try_key)
        async with trio.open_nursery() as nursery:
            fields = fetch_fields({("t", 0): 0}, max_wait_ms=60_000)
            for number, consumer in enumerate(consumers, FETCH):
                nursery.start_soon(ask_for(consumer, ApiKey.FETCH, 11, number, fields))
            await trio.sleep(1)
            parked = world.application.broker.replicas.fetch_purgatory
            assert parked.size == len(tried) == CROWD
            tried.clear()
            fields = produce_fields({("t", 0): batch(b"x" * 50)})
            await ask(producer, ApiKey.PRODUCE, 8, 0, **fields)
            produced_ns = world.clock.now_ns()
            await ask(controller, ApiKey.METADATA, 5, 9999, **EVERYTHING)
            answered_ns = world.clock.now_ns()
    assert dispatcher.planes[0].away == 0
    return counted(world), tried, produced_ns, answered_ns


def test_a_crowd_of_fetches_is_tried_in_its_own_turns_and_can_be_preempted():
    requests, tried, produced_ns, answered_ns = in_world(
        a_produce_meets_a_crowd,
        settings("priority", metadata=0, produce=1, fetch=5),
        application=kafka,
    )
    # Each fetch is tried once, in a slice of its own.
    assert len(tried) == CROWD == len(set(tried))
    for number in range(FETCH, FETCH + CROWD):
        assert requests[number].attained_ns == 2 * SLICE_NS
    # The producer has woken them in pieces, with preemption points between.
    assert requests[0].attained_ns == -(-CROWD // PIECE) * SLICE_NS
    # A request that outranks the crowd waits for at most a slice of it.
    assert answered_ns - produced_ns <= 3 * SLICE_NS


@pytest.mark.parametrize("scheduler", ["fifo", "priority", "wfq", "planes", "las"])
def test_a_continuation_is_billed_to_its_own_request(scheduler):
    requests = in_world(
        a_produce_completes_a_fetch, settings(scheduler), application=kafka
    )
    # A produce to n partitions takes n slices; the fetch reads once before and once
    # after its wait.
    assert requests[COMPLETER].attained_ns == WIDE * SLICE_NS
    assert requests[FETCH].attained_ns == 2 * SLICE_NS
    assert requests[FETCH].flow == "fetch"
    assert requests[COMPLETER].flow == "produce"


@pytest.mark.parametrize(
    ("produce", "expected"), [(5, [FETCH, MIDDLE, COMPLETER]), (0, [FETCH, COMPLETER])]
)
def test_a_produce_that_followers_complete_goes_on_at_its_own_level(produce, expected):
    """A follower's fetch advances the high watermark; the produce waits its turn."""

    async def scenario(world):
        producer, follower, others = (world.connect() for _ in range(3))
        command = leader_and_isr(
            ("t", 0), leader=0, leader_epoch=1, isr=(0, 7), controller_epoch=1
        )
        body = command.to_wire(4)
        await others.send_all(
            encode_request(ApiKey.LEADER_AND_ISR, 4, -1, "controller", body)
        )
        await answer(others, ApiKey.LEADER_AND_ISR, 4)
        async with trio.open_nursery() as nursery:
            fields = produce_fields(pages(1), acks=-1)
            nursery.start_soon(ask_for(producer, ApiKey.PRODUCE, 8, COMPLETER, fields))
            await trio.sleep(0.01)
            fields = fetch_fields({("t", 0): 1}, replica_id=7, max_wait_ms=0)
            topics = {"topics": None, "allow_auto_topic_creation": False}
            # Both requests are read at one poll of the sockets.
            await ask_nothing(follower, ApiKey.FETCH, 11, FETCH, **fields)
            await ask_nothing(others, ApiKey.METADATA, 5, MIDDLE, **topics)
            await answer(follower, ApiKey.FETCH, 11)
            await answer(others, ApiKey.METADATA, 5)
        return counted(world)

    levels = {"replication": 1, "metadata": 3, "produce": produce}
    requests = in_world(scenario, settings("priority", **levels), application=kafka)
    assert requests[FETCH].request_class == "replication"
    assert requests[COMPLETER].request_class == "produce"
    assert order(requests)[: len(expected)] == expected


def test_a_fetch_that_the_timer_ends_waits_for_what_outranks_it():
    async def scenario(world):
        consumer, *producers = (world.connect() for _ in range(4))
        await create_topic(consumer, WIDE)
        async with trio.open_nursery() as nursery:
            fields = fetch_fields({("t", 0): 0}, max_wait_ms=20)
            nursery.start_soon(ask_for(consumer, ApiKey.FETCH, 11, FETCH, fields))
            # The fetch expires during these produces of a millisecond each.
            await trio.sleep(0.0195)
            batches = {("t", index): batch(b"x") for index in range(1, WIDE)}
            fields = produce_fields(batches)
            for number, producer in enumerate(producers, start=10):
                nursery.start_soon(ask_for(producer, ApiKey.PRODUCE, 8, number, fields))
        return counted(world)

    for fetch, place in ((5, 3), (1, 1)):
        levels = {"produce": 3, "fetch": fetch}
        requests = in_world(scenario, settings("priority", **levels), application=kafka)
        assert order(requests).index(FETCH) == place


# ---- the lock of state changes ------------------------------------------------------

CREATION, CONTROL = 1, 2
CREATED, FLOOD = 40, 10


@pytest.mark.parametrize("scheduler", ["priority", "planes"])
@pytest.mark.parametrize("inherits", [True, False])
def test_a_controller_waits_for_a_creation_but_not_for_what_preempts_it(
    scheduler, inherits
):
    """CreateTopics, of the lowest class, holds the lock that the controller needs."""

    async def scenario(world):
        admin, others = world.connect(), world.connect()
        controller = world.connect(world.control_listener())
        producers = [world.connect() for _ in range(FLOOD)]
        await create_topic(others, WIDE)
        async with trio.open_nursery() as nursery:
            fields = {"topics": [new_topic("wide", CREATED)], "timeout": SECONDS_30}
            nursery.start_soon(
                ask_for(admin, ApiKey.CREATE_TOPICS, 5, CREATION, fields)
            )
            await trio.sleep(5 * SLICE_NS / 1e9)
            fields = produce_fields(pages(WIDE))
            for number, producer in enumerate(producers, start=10):
                nursery.start_soon(ask_for(producer, ApiKey.PRODUCE, 8, number, fields))
            await trio.sleep(5 * SLICE_NS / 1e9)
            command = update_metadata(("t", 0), leader=0, replicas=(0,)).to_wire(6)
            await controller.send_all(
                encode_request(ApiKey.UPDATE_METADATA, 6, CONTROL, "it", command)
            )
            await answer(controller, ApiKey.UPDATE_METADATA, 6)
        return counted(world)

    chosen = {
        **settings(scheduler),
        "num.io.threads": "8",
        "doorkeeper.data.scheduler": "priority",
        "doorkeeper.lock.inheritance": str(inherits).lower(),
    }
    requests = in_world(scenario, chosen, application=kafka)
    assert set(requests) == {CREATION, CONTROL, *range(10, 10 + FLOOD)}
    control = requests[CONTROL]
    took_ns = control.remote_done_ns - control.received_ns
    creation_ns = (CREATED + 2) * SLICE_NS
    flood_ns = FLOOD * WIDE * SLICE_NS
    if inherits:
        # Produce requests get half of the CPU if planes share it.
        assert took_ns <= creation_ns * (2 if scheduler == "planes" else 1)
    else:
        assert took_ns >= flood_ns - 5 * SLICE_NS
    assert control.service_ns == SLICE_NS
    assert requests[CREATION].service_ns >= CREATED * SLICE_NS
