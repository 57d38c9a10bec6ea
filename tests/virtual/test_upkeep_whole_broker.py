"""Compaction beside requests in the whole broker: requests wait for one step at most.

The broker's own cleaner compacts a log that takes a second of steps, under every
policy. Work that Kafka runs in separate threads is the lowest class here.
"""

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.records.batch_records import new_batch
from broker.protocol.wire.codec import encode_request
from planes.upkeep import HOUSEKEEPING
from schedulers.registry import POLICIES
from tests.broker.apis.requests import (
    SECONDS_30,
    START_MS,
    batch,
    leader_and_isr,
    new_topic,
    produce_fields,
)
from tests.virtual.kafka import SETTINGS, answer, ask, kafka
from tests.virtual.world import MS, in_world

STEP_NS = 2 * MS
FIRST_MS = 1000
REQUESTS = 20
# Not a multiple of a step, so requests arrive at all phases of a step.
GAP_NS = 7_700_000


def settings(scheduler, **more):
    return {
        **SETTINGS,
        "doorkeeper.scheduler": scheduler,
        "log.initial.task.delay.ms": str(FIRST_MS),
        **more,
    }


async def compacted_topic(world):
    stream = world.connect()
    configs = (
        ("cleanup.policy", "compact"),
        ("segment.bytes", "2048"),
        ("min.cleanable.dirty.ratio", "0.01"),
    )
    topics = [new_topic("c", configs=configs), new_topic("t")]
    await ask(stream, ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=SECONDS_30)
    for number in range(60):
        key = b"%d" % (number % 7)
        sent = new_batch([(START_MS, key, b"x" * 600)])
        await ask(stream, ApiKey.PRODUCE, 9, **produce_fields({("c", 0): sent}, 1))
    return stream


async def lone_requests(world):
    """Send one request at a time, by controller or client, while the cleaner runs."""
    client = await compacted_topic(world)
    controller = world.connect(world.control_listener())
    due_ns = [FIRST_MS * MS + GAP_NS * (1 + number) for number in range(REQUESTS)]
    sent_ns = []
    for number in range(REQUESTS):
        await trio.sleep_until(due_ns[number] / 1e9)
        # This task runs only between steps, so a step has just ended.
        sent_ns.append(world.clock.now_ns())
        if number % 2:
            fields = produce_fields({("t", 0): batch(b"x")}, 1)
            await ask(client, ApiKey.PRODUCE, 9, number, **fields)
        else:
            command = leader_and_isr(("t", 0), leader=0, leader_epoch=number + 1)
            body, key = command.to_wire(4), ApiKey.LEADER_AND_ISR
            await controller.send_all(encode_request(key, 4, number, "it", body))
            await answer(controller, key, 4)
    ledger = world.server.dispatcher.ledger
    waits_ns = {
        number: it.dequeued_ns - sent_ns[number]
        for number, it in world.tasks.items()
        if number >= 0
    }
    return waits_ns, ledger.by_kind_ns.get("upkeep", 0)


@pytest.mark.parametrize("scheduler", [*sorted(POLICIES), "planes", "planes-lending"])
def test_a_lone_request_waits_for_the_step_that_it_meets_and_no_longer(scheduler):
    waits_ns, upkeep_ns = in_world(
        lone_requests,
        settings(scheduler),
        application=kafka,
        slices_ns={HOUSEKEEPING: STEP_NS},
    )
    assert len(waits_ns) == REQUESTS
    # The cleaner worked between all requests, and no request waited for two steps.
    assert upkeep_ns > REQUESTS * STEP_NS
    assert 0 < max(waits_ns.values()) <= STEP_NS


def test_without_a_cleaner_no_request_waits():
    waits_ns, upkeep_ns = in_world(
        lone_requests,
        settings("fifo", **{"log.cleaner.enable": "false"}),
        application=kafka,
        slices_ns={HOUSEKEEPING: STEP_NS},
    )
    assert max(waits_ns.values()) == 0
    assert upkeep_ns < REQUESTS * STEP_NS
