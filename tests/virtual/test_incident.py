"""KIP-291's two delays S1 and S2, each reproduced and removed by its own measure.

Forty producers keep one request each in the broker. The queue holds ten requests, and
each takes a millisecond of the one CPU. A controller sends one LeaderAndIsr into this
backlog.

S1: the processor blocks on the full queue, and does not read the controller's request.
S2: the request is in the queue, behind the backlog.
"""

from typing import NamedTuple

import pytest
import trio

from tests.virtual.world import (
    LEADER_AND_ISR,
    PRODUCE,
    PRODUCE_NS,
    SLICE_NS,
    US,
    in_world,
)

PRODUCERS = 40
# Control waits at most for the running slice, and for the quantum of 500 us where
# planes share the CPU.
PROMPT_NS = 500 * US + 2 * SLICE_NS


class Control(NamedTuple):
    """Mean times of the controller's requests.

    ``outside_ns`` is from send to enqueue, ``inside_ns`` is in the queue.
    """

    outside_ns: int
    inside_ns: int
    total_ns: int


def control_request_in_a_backlog(**settings):
    """Return the mean times of ten control requests, one after another."""
    dotted = {key.replace("_", "."): value for key, value in settings.items()}

    async def scenario(world):
        async def produce_for_ever(stream):
            while True:
                await world.ask(stream, PRODUCE)

        ids = []
        async with trio.open_nursery() as nursery:
            for _ in range(PRODUCERS):
                nursery.start_soon(produce_for_ever, world.connect())
            controller = world.connect(world.control_listener())
            for _ in range(10):
                await trio.sleep(0.1)
                ids.append(await world.ask(controller, LEADER_AND_ISR))
            nursery.cancel_scope.cancel()
        found = []
        for correlation_id in ids:
            task = world.tasks[correlation_id]
            sent_ns = world.sent_ns[correlation_id]
            found.append(
                Control(
                    task.enqueued_ns - sent_ns,
                    task.dequeued_ns - task.enqueued_ns,
                    world.answered_ns[correlation_id] - sent_ns,
                )
            )
        return Control(
            *(sum(column) // len(found) for column in zip(*found, strict=True))
        )

    return in_world(scenario, dotted)


AWARE = {"doorkeeper_reader": "class-aware"}
EXEMPT = {"doorkeeper_admission": "exempt"}
RESERVE = {"doorkeeper_admission": "reserve", "doorkeeper_admission_reserved": "2"}


def test_fifo_suffers_from_both_delays():
    control = control_request_in_a_backlog(doorkeeper_scheduler="fifo")
    assert control.outside_ns > 10 * PRODUCE_NS
    # Ten requests are queued before it; the first one may be in service.
    assert 9 * PRODUCE_NS < control.inside_ns <= 10 * PRODUCE_NS


@pytest.mark.parametrize("policy", ["priority", "wfq"])
def test_a_policy_alone_cures_the_queue_and_not_the_reader(policy):
    control = control_request_in_a_backlog(doorkeeper_scheduler=policy)
    assert control.outside_ns > 10 * PRODUCE_NS
    assert control.inside_ns <= PROMPT_NS


@pytest.mark.parametrize("admission", [EXEMPT, RESERVE], ids=["exempt", "reserve"])
def test_a_blind_reader_makes_admission_useless(admission):
    control = control_request_in_a_backlog(doorkeeper_scheduler="priority", **admission)
    assert control.outside_ns > 10 * PRODUCE_NS


def test_a_class_aware_reader_cures_the_reader_and_not_the_queue():
    """The request waits outside until a pick makes room, then behind the queue."""
    control = control_request_in_a_backlog(doorkeeper_scheduler="fifo", **AWARE)
    assert control.outside_ns <= PRODUCE_NS + PROMPT_NS
    assert 9 * PRODUCE_NS < control.inside_ns <= 10 * PRODUCE_NS


@pytest.mark.parametrize("admission", [EXEMPT, RESERVE], ids=["exempt", "reserve"])
def test_admission_lets_it_stand_in_the_queue_at_once_and_still_behind_it(admission):
    control = control_request_in_a_backlog(
        doorkeeper_scheduler="fifo", **AWARE, **admission
    )
    assert control.outside_ns <= PROMPT_NS
    assert control.inside_ns > 7 * PRODUCE_NS


@pytest.mark.parametrize("policy", ["priority", "wfq"])
def test_reader_and_policy_leave_only_the_wait_for_room(policy):
    control = control_request_in_a_backlog(doorkeeper_scheduler=policy, **AWARE)
    assert PROMPT_NS < control.outside_ns <= PRODUCE_NS + PROMPT_NS
    assert control.inside_ns <= PROMPT_NS


@pytest.mark.parametrize("policy", ["priority", "wfq"])
@pytest.mark.parametrize("admission", [EXEMPT, RESERVE], ids=["exempt", "reserve"])
def test_reader_admission_and_policy_together_cure_both(policy, admission):
    control = control_request_in_a_backlog(
        doorkeeper_scheduler=policy, **AWARE, **admission
    )
    assert control.outside_ns <= PROMPT_NS
    assert control.inside_ns <= PROMPT_NS
    assert control.total_ns <= 3 * PROMPT_NS


def test_a_plane_of_its_own_cures_both():
    control = control_request_in_a_backlog(doorkeeper_scheduler="planes")
    assert control.outside_ns <= PROMPT_NS
    assert control.inside_ns <= PROMPT_NS
    assert control.total_ns <= 3 * PROMPT_NS


def test_with_fewer_connections_than_the_queue_holds_there_is_no_first_delay():
    """A connection has one request in the broker, so few connections cannot fill it."""
    control = control_request_in_a_backlog(
        doorkeeper_scheduler="fifo", queued_max_requests=str(PRODUCERS + 1)
    )
    assert control.outside_ns <= PROMPT_NS
    assert control.inside_ns > (PRODUCERS - 2) * PRODUCE_NS
