"""Flushes with callbacks: callers are called in order, or refused."""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Sequence

import pytest

from broker.disk.memory import Faults, MemoryStorage
from broker.log.flushing import flush
from broker.log.log import Log
from broker.log.steps import BlockingCall
from broker.log.upkeep.periodic_task import CallsHere, Done
from broker.node.flush_shell import QueuedFlushes
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.apis.broker_world import NONE, World
from tests.broker.log.witness import NOW_MS, batch, disk, open_log, values_of

EVERY_COMMIT = {"log.flush.interval.messages": "1", "offsets.topic.num.partitions": "1"}


class Later:
    """Runs blocking calls on request; ``done`` runs as on the thread's own queue."""

    def __init__(self) -> None:
        self.calls: deque[tuple[BlockingCall, Done]] = deque()

    def start(self, call: BlockingCall, done: Done) -> None:
        self.calls.append((call, done))

    def run_all(
        self, calls: Sequence[BlockingCall], threads: int | None = None
    ) -> None:
        for call in calls:
            call()

    def close(self) -> None:
        pass

    def finish(self) -> None:
        """Run the oldest call."""
        call, done = self.calls.popleft()
        try:
            call()
        except (OSError, KafkaError) as error:
            done(error)
        else:
            done(None)


class Flushed:
    """An in-memory log, and the results that callers received, in order."""

    def __init__(self) -> None:
        self.storage: MemoryStorage = disk()
        self.log: Log = open_log(self.storage)
        self.threads = Later()
        self.moved = 0
        self.flushes = QueuedFlushes(lambda: NOW_MS, self.threads, self.move)
        self.told: list[tuple[int, ErrorCode | None]] = []

    def move(self) -> None:
        self.moved += 1

    def ask(self, number: int) -> None:
        self.log.append(batch([b"%d" % number]), 0, NOW_MS)
        self.flushes.add(self.log, lambda fault: self.hear(number, fault))

    def hear(self, number: int, fault: KafkaError | None) -> None:
        self.told.append((number, None if fault is None else fault.code))

    def work(self) -> None:
        """Run due work, at a time later than its deadline, as a broker does."""
        for now_ns in range(1, 100):
            if (due_ns := self.flushes.next_ns()) is None:
                return
            assert due_ns < now_ns
            self.flushes.work(now_ns)
        pytest.fail("what is due is not done")


def test_requests_during_a_flush_share_the_next_one() -> None:
    it = Flushed()
    for number in range(4):
        it.ask(number)
    assert len(it.threads.calls) == 1
    assert it.told == []
    it.threads.finish()
    # A thread has finished; callbacks run on the event loop, later.
    assert it.told == []
    assert it.moved == 1
    it.work()
    assert it.told == [(0, None)]
    assert it.flushes.is_busy(it.log)
    it.threads.finish()
    it.work()
    assert it.told == [(number, None) for number in range(4)]
    assert not it.threads.calls
    assert not it.flushes.is_busy(it.log)
    left = it.storage.after_power_loss(random.Random(1))
    assert list(values_of(open_log(left))) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("error", "in_service"), [(errno.EIO, False), (errno.EMFILE, True)]
)
def test_all_who_wait_for_a_flush_that_fails_are_refused(
    error: int, in_service: bool
) -> None:
    it = Flushed()
    it.log.append(batch([b"x"]), 0, NOW_MS)
    if not in_service:
        # Flush first: then the first disk call is the sync of an open file.
        flush(it.log)
    it.ask(0)
    it.ask(1)
    it.storage.faults = Faults(1, error=error)
    it.threads.finish()
    it.work()
    refused = ErrorCode.kafka_storage_error
    assert it.told == [(0, refused), (1, refused)]
    assert (it.log.durability.out_of_service is None) is in_service
    if in_service:
        it.ask(2)
        it.threads.finish()
        it.work()
        assert it.told[2:] == [(2, None)]
    else:
        it.flushes.add(it.log, lambda fault: it.hear(3, fault))
        assert it.told[2:] == [(3, refused)]


def test_an_answered_request_may_flush_again_behind_the_others() -> None:
    it = Flushed()
    it.log.append(batch([b"x"]), 0, NOW_MS)
    it.flushes.add(it.log, lambda fault: it.ask(7))
    it.ask(1)
    for _ in range(3):
        it.threads.finish()
        it.work()
        if not it.threads.calls:
            break
    assert it.told == [(1, None), (7, None)]


def test_a_caller_that_fails_keeps_no_other_from_being_told() -> None:
    it = Flushed()

    def fail(_: KafkaError | None) -> None:
        raise ZeroDivisionError

    it.log.append(batch([b"x"]), 0, NOW_MS)
    it.flushes.add(it.log, fail)
    it.ask(1)
    it.threads.finish()
    with pytest.raises(ZeroDivisionError):
        it.work()
    it.threads.finish()
    it.work()
    assert it.told == [(1, None)]


def test_a_log_that_is_deleted_meanwhile_refuses_who_waits() -> None:
    it = Flushed()
    it.ask(0)
    it.ask(1)
    it.log.close("it was deleted")
    it.threads.finish()
    it.work()
    assert [number for number, _ in it.told] == [0, 1]
    assert it.told[1][1] is ErrorCode.kafka_storage_error
    assert not it.flushes.is_busy(it.log)


def test_here_everybody_is_told_at_once() -> None:
    it = Flushed()
    it.flushes = QueuedFlushes(lambda: NOW_MS, CallsHere(), it.move)
    it.ask(0)
    it.ask(1)
    assert it.told == [(0, None), (1, None)]
    assert it.moved == 0


def test_a_commit_that_is_to_be_flushed_is_answered_when_it_is_durable() -> None:
    """A second commit that arrives during the flush waits for the next flush."""
    threads = Later()
    world = World(EVERY_COMMIT, threads=threads)
    world.create("t")
    world.send(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
    world.pass_ms(0)
    threads.calls.clear()
    waiting = [world.start(ApiKey.OFFSET_COMMIT, 8, **commit(n)) for n in (1, 2)]
    world.pass_ms(0)
    assert [each.done for each in waiting] == [False, False]
    threads.finish()
    world.pass_ms(0)
    assert [each.done for each in waiting] == [True, False]
    threads.finish()
    world.pass_ms(0)
    for each in waiting:
        assert each.answer.topics[0].partitions[0].error_code is NONE
    after = World(EVERY_COMMIT, world.storage.after_power_loss(random.Random(3)))
    wanted = {"name": "t", "partition_indexes": [0]}
    found = after.send(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[wanted])
    assert found.topics[0].partitions[0].committed_offset == 2


def commit(offset: int) -> dict[str, object]:
    committed = {"partition_index": 0, "committed_offset": offset}
    topic = {"name": "t", "partitions": [committed]}
    return {"group_id": "g", "generation_id": -1, "topics": [topic]}


def test_waiting_requests_are_refused_where_no_flush_can_start() -> None:
    it = Flushed()

    def refuse(call: BlockingCall, done: Done) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(it.threads, "start", refuse)
        it.ask(0)
        it.work()
    assert it.told == [(0, ErrorCode.unknown_server_error)]
    assert not it.flushes.is_busy(it.log)
    it.ask(1)
    it.threads.finish()
    it.work()
    assert it.told[1:] == [(1, None)]
