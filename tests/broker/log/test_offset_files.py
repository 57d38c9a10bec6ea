"""Checkpoint files keep the offsets of the latest view, in any order of writes."""

from __future__ import annotations

from broker.disk import checkpoints
from broker.disk.memory import MemoryStorage
from broker.disk.offset_files import OffsetFiles
from broker.protocol.topic_partition import TopicPartition

HOME, NAME = "/data", checkpoints.LOG_START_OFFSETS
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def made() -> tuple[MemoryStorage, OffsetFiles]:
    storage = MemoryStorage()
    storage.make_directory(HOME)
    files = OffsetFiles(storage)
    assert files.read(HOME, NAME) == {}
    return storage, files


def test_an_older_view_does_not_replace_a_newer_one() -> None:
    storage, files = made()
    older = files.writing(HOME, {NAME: {A: 1, B: 1}}, files.view())
    newer = files.writing(HOME, {NAME: {A: 2}}, files.view())
    newer()
    older()
    assert checkpoints.read_offsets(storage, HOME, NAME) == {A: 2}


def test_forgotten_offsets_stay_forgotten_despite_pending_writes() -> None:
    storage, files = made()
    files.writing(HOME, {NAME: {A: 1, B: 1}}, files.view())()
    late = files.writing(HOME, {NAME: {A: 3, B: 2}}, files.view())
    files.remove(HOME, {A})
    assert checkpoints.read_offsets(storage, HOME, NAME) == {B: 1}
    late()
    assert checkpoints.read_offsets(storage, HOME, NAME) == {B: 2}
    files.writing(HOME, {NAME: {A: 0, B: 2}}, files.view())()
    assert checkpoints.read_offsets(storage, HOME, NAME) == {A: 0, B: 2}
    again = OffsetFiles(storage)
    again.read(HOME, NAME)
    again.remove(HOME, {B})
    again.remove("/other", {A})
    assert checkpoints.read_offsets(storage, HOME, NAME) == {A: 0}


def test_a_topic_that_comes_again_writes_each_file_once() -> None:
    storage, files = made()
    removed = {TopicPartition("a", n): n for n in range(50)}
    files.writing(HOME, {NAME: {**removed, B: 1}}, files.view())()
    calls = storage.faults.calls
    files.remove(HOME, removed.keys())
    assert storage.faults.calls - calls < 10
    assert checkpoints.read_offsets(storage, HOME, NAME) == {B: 1}


def test_added_offsets_outlive_an_earlier_view() -> None:
    storage, files = made()
    files.writing(HOME, {NAME: {B: 1}}, files.view())()
    view = files.view()
    files.add(HOME, NAME, lambda: {A: 5})
    files.writing(HOME, {NAME: {A: 4, B: 1}}, view)()
    assert checkpoints.read_offsets(storage, HOME, NAME) == {A: 5, B: 1}
