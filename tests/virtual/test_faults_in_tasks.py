"""A fault at every await point of a broker's tasks: the cluster stays available."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.fault_injection import MARK, FaultInjector, Point
from tests.virtual.members import Members, in_sync, numbers, send, with_members

# Messages of the faults, and of a task whose sibling has failed.
EXPECTED = (MARK, "Nursery is closed to new arrivals")
ROOT = "tests.virtual.members.Members._live"
SETTINGS = {
    "log_retention_check_interval_ms": "1000",
    "log_initial_task_delay_ms": "1000",
    "log_segment_bytes": "1000",
    "request_timeout_ms": "2000",
}


def faults_of(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from faults_of(each)
    else:
        yield error


async def restart(members: Members, number: int, injector: FaultInjector) -> None:
    """Stop a broker with faults, and start it without: a start may fail."""
    await members.stop(number)
    await trio.sleep(3)
    injector.armed = False
    await members.start(number)
    injector.armed = True


async def load(members: Members, injector: FaultInjector, until_s: float) -> None:
    """Send requests that reach all await points of a broker."""
    for number in count():
        if trio.current_time() > until_s:
            return
        name = f"u{number}"
        await trio.sleep(0.1)
        if number % 20 == 19:
            await restart(members, number // 20 % 3, injector)
        with suppress(EOFError, trio.BrokenResourceError), trio.move_on_after(10):
            await members.create(name)
            await members.ask(
                number % 3,
                ApiKey.METADATA,
                9,
                topics=[{"name": name}],
                allow_auto_topic_creation=True,
            )
            await members.ask(
                members.controller or 0,
                ApiKey.DELETE_TOPICS,
                5,
                topic_names=(name,),
                timeout=SECONDS_30,
            )


async def serves(members: Members, seed: int) -> None:
    """Check that every broker answers, and replication, ISR and retention work."""
    name = f"after-{seed}"
    await members.until(lambda: members.controller is not None, 120)
    configs = (("retention.ms", "10000"), ("segment.ms", "1000"))
    created = await members.create(name, configs=configs)
    assert created.error_code is ErrorCode.none
    await members.until(lambda: members.leader(name) >= 0)
    await in_sync(members, name)
    async with members.producer() as producer:
        await send(producer, numbers(0, 10), name)
        await trio.sleep(2)
        await send(producer, numbers(10, 20), name)
    for number in members.alive:
        answered = await members.ask(
            number, ApiKey.METADATA, 9, topics=[{"name": name}]
        )
        assert answered.topics[0].error_code is ErrorCode.none
    leader = members.leader(name)
    follower = next(it for it in members.alive if it != leader)
    await members.stop(follower)
    await members.until(lambda: members.isr(name) == {0, 1, 2} - {follower})
    await members.start(follower)
    await in_sync(members, name)
    log = members.partition(follower, name).log
    assert log.log_end_offset == 20
    # The segments are older than their retention.
    await members.until(lambda: log.log_start_offset > 0)


def run(seed: int, caplog: pytest.LogCaptureFixture, within_s: float) -> set[Point]:
    caplog.set_level(logging.ERROR)

    async def scenario(members: Members) -> set[Point]:
        injector = FaultInjector(seed, roots=(ROOT,), pause_s=3)
        trio.lowlevel.add_instrument(injector)
        for number in range(3):
            await members.stop(number)
            await members.start(number)
        await members.until(members.know_each_other)
        await members.create("t")
        injector.armed = True
        await load(members, injector, trio.current_time() + within_s)
        injector.armed = False
        for member in members.members:
            assert not member.ended.is_set(), f"broker {member.number} has ended"
        await trio.sleep(15)
        await serves(members, seed)
        print(f"{len(injector.raised)} await points, seed {seed}")
        for point, fault in injector.raised.items():
            print(type(fault).__name__, *point)
        return set(injector.raised)

    found = with_members(scenario, seed=seed, **SETTINGS)
    for record in caplog.records:
        if record.exc_info and record.exc_info[1] is not None:
            for fault in faults_of(record.exc_info[1]):
                assert any(text in str(fault) for text in EXPECTED), record
    return found


def test_a_sample_of_faults(caplog: pytest.LogCaptureFixture) -> None:
    assert len(run(0, caplog, 30)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_faults_at_every_point_that_is_visited(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(run(seed, caplog, 200)) > 40
