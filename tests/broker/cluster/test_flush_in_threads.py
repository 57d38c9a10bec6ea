"""Flushes in threads: durable on return, shared by waiters, final on failure."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.disk.files import RealStorage
from broker.log import flushing
from broker.log.log import Log
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep.recovery import open_log
from broker.node.call_shell import call_in_thread
from broker.node.flush_shell import SharedFlush
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.apis.requests import START_MS, batch


class SlowFile:
    """A file whose next syncs wait for an event, and may fail."""

    def __init__(self, file: object) -> None:
        self._file = file
        self.go = threading.Event()
        self.syncs = 0
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        self.syncs += 1
        assert threading.current_thread() is not threading.main_thread()
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error


@pytest.fixture
def log(tmp_path: Path) -> Log:
    path = str(tmp_path / "t-0")
    log = open_log(path, LogConfig(flush_ms=1000), RealStorage(), START_MS)
    flushing.flush(log)
    return log


def slow(log: Log) -> SlowFile:
    file = SlowFile(log.segments.active.file)
    log.segments.active.file = file  # type: ignore[assignment] # stands in for a File
    return file


def append(log: Log) -> None:
    log.append(batch(b"x"), 0, START_MS)


async def test_a_flush_is_over_when_the_records_are_durable(log: Log) -> None:
    append(log)
    assert flushing.flush_due(log, START_MS + 1000)
    await SharedFlush(lambda: START_MS + 1000, call_in_thread)(log)
    assert log.recovery_point == 1
    append(log)
    # flush.ms counts from the flush.
    assert not flushing.flush_due(log, START_MS + 1999)
    assert flushing.flush_due(log, START_MS + 2000)


async def test_nothing_to_flush_costs_no_thread(log: Log) -> None:
    file = slow(log)
    await SharedFlush(lambda: 0, call_in_thread)(log)
    assert file.syncs == 0


async def test_requests_during_a_flush_share_the_next(log: Log) -> None:
    file = slow(log)
    flush = SharedFlush(lambda: START_MS, call_in_thread)
    done: list[int] = []

    async def append_and_flush(number: int) -> None:
        append(log)
        await flush(log)
        assert log.recovery_point > number
        done.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_and_flush, 0)
        await wait_all_tasks_blocked()
        for number in range(1, 10):
            nursery.start_soon(append_and_flush, number)
            await wait_all_tasks_blocked()
        assert done == []
        file.go.set()
    assert sorted(done) == list(range(10))
    # The first request has a sync of its own; the other nine share one.
    assert file.syncs == 2
    assert log.recovery_point == 10


async def test_a_failed_flush_fails_all_who_wait_and_every_later_append(
    log: Log,
) -> None:
    file = slow(log)
    file.error = OSError(5, os.strerror(5))
    flush = SharedFlush(lambda: START_MS, call_in_thread)
    failures: list[ErrorCode] = []

    async def append_and_flush() -> None:
        append(log)
        try:
            await flush(log)
        except KafkaError as error:
            failures.append(error.code)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(append_and_flush)
            await wait_all_tasks_blocked()
        file.go.set()
    assert failures == [ErrorCode.kafka_storage_error] * 3
    with pytest.raises(KafkaError):
        append(log)
