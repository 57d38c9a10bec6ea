"""A disk or one of its files is read-only, at a start or later.

Reads of open files succeed. The broker opens files for reading and writing, which the
operating system refuses on such a disk.
"""

from __future__ import annotations

import errno
import os
from typing import Final

import pytest

from broker.coordination.registry_file import FILE_NAME
from broker.disk.memory import Faults, MemoryStorage
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode, LogDirsLost
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import fetch_fields, values_of

BAD, GOOD = "/data/bad", "/data/good"
BOTH: Final = {"log.dirs": f"{BAD},{GOOD}"}
FAULT: Final = ErrorCode.kafka_storage_error
ERRORS: Final = (errno.EROFS, errno.EACCES)


class ReadOnly(Faults):
    """Refuses to open or change files below ``path``; reads and syncs succeed."""

    def __init__(self, path: str, error: int = errno.EROFS) -> None:
        super().__init__(reads=True)
        self._path = path
        self._refusal = error

    def count(self, call: str) -> None:
        self.calls += 1
        what, _, path = call.partition(" ")
        if what not in ("read", "sync") and path.startswith(self._path):
            raise OSError(self._refusal, os.strerror(self._refusal), path)


def filled(settings: dict[str, str]) -> World:
    """Return a broker with a record in each of four partitions."""
    world = World(settings)
    world.create("t", 4)
    for partition in range(4):
        assert world.produce("t", b"v", partition=partition).error_code is NONE
    return world


def of_home(world: World, home: str) -> list[int]:
    return [
        index
        for (name, index), log in world.broker.logs.logs.items()
        if name == "t" and log.home == home
    ]


def first_value(world: World, partition: int) -> bytes:
    fields = fetch_fields({("t", partition): 0})
    row = world.send(ApiKey.FETCH, 12, **fields).responses[0].partitions[0]
    assert row.error_code is NONE
    return values_of(row.records)[0][1]


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ["", "/meta.properties", f"/{FILE_NAME}", "/.lock"])
def test_a_start_goes_on_without_a_directory_that_cannot_be_written(
    name: str, error: int
) -> None:
    before = filled(BOTH)
    lost, kept = of_home(before, BAD), of_home(before, GOOD)
    assert len(lost) == len(kept) == 2
    disk = before.storage.after_kill(ReadOnly(BAD + name, error))
    world = World(BOTH, disk)
    assert list(world.broker.log_dirs.offline) == [BAD]
    for index in lost:
        assert world.produce("t", b"w", partition=index).error_code is FAULT
    for index in kept:
        assert world.produce("t", b"w", partition=index).error_code is NONE
    world.create("new")
    after = World(BOTH, disk.after_kill())
    assert set(after.broker.coordinator.admin.topics) == {"t", "new"}
    assert [first_value(after, index) for index in range(4)] == [b"v"] * 4


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ["", "/meta.properties", f"/{FILE_NAME}", "/.lock"])
def test_a_start_on_the_only_directory_is_refused_and_names_the_file(
    name: str, error: int
) -> None:
    one = {"log.dirs": BAD}
    disk = filled(one).storage.after_kill(ReadOnly(BAD + name, error))
    with pytest.raises(ConfigError) as refused:
        World(one, disk)
    assert refused.value.key == "log.dirs"
    assert BAD + name in str(refused.value)
    assert os.strerror(error) in str(refused.value)
    # The attempt has changed nothing.
    assert [first_value(World(one, disk.after_kill()), n) for n in range(4)] == [
        b"v"
    ] * 4


def test_a_disk_that_becomes_read_only_costs_what_is_on_it_and_no_more() -> None:
    world = filled(BOTH)
    lost, kept = of_home(world, BAD), of_home(world, GOOD)
    world.storage.faults = ReadOnly(BAD)
    assert world.produce("t", b"w", partition=lost[0]).error_code is FAULT
    world.pass_ms(0)
    assert world.broker.log_dirs.online == [GOOD]
    for index in kept:
        assert world.produce("t", b"w", partition=index).error_code is NONE
    world.create("new", 2)
    world.pass_ms(600_000)
    assert not world.broker.maintenance.failures
    after = World(BOTH, world.storage.after_kill(Faults()))
    assert [first_value(after, index) for index in range(4)] == [b"v"] * 4
    assert set(after.broker.coordinator.admin.topics) == {"t", "new"}


@pytest.mark.parametrize("name", ["", f"/{FILE_NAME}"])
def test_a_topic_is_refused_by_the_only_disk_that_is_read_only_and_ends_it(
    name: str,
) -> None:
    one = {"log.dirs": BAD}
    world = filled(one)
    world.storage.faults = ReadOnly(BAD + name)
    with pytest.raises(AssertionError, match="kafka_storage_error"):
        world.create("new")
    with pytest.raises(LogDirsLost, match=BAD):
        world.pass_ms(0)
    after = World(one, world.storage.after_kill(Faults()))
    assert set(after.broker.coordinator.admin.topics) <= {"t", "new"}
    assert [first_value(after, index) for index in range(4)] == [b"v"] * 4


def test_two_brokers_never_have_one_directory() -> None:
    """The second broker is refused, names the directory and leaves it unchanged."""
    one = {"log.dirs": f"{BAD},{GOOD}"}
    first = filled(one)
    before = content(first.storage)
    for other in (one, {"log.dirs": f"/data/own,{GOOD}"}):
        with pytest.raises(ConfigError, match="a directory no other broker uses") as no:
            World(other, first.storage)
        assert no.value.key == "log.dirs"
        assert no.value.found in (BAD, GOOD)
        now = content(first.storage)
        assert {path: now[path] for path in before} == before
    assert first.produce("t", b"w").base_offset == 1
    first.create("new")
    first.broker.close()
    second = World(one, first.storage)
    assert set(second.broker.coordinator.admin.topics) == {"t", "new"}


def content(storage: MemoryStorage) -> dict[str, bytes]:
    """Return the contents of all files below the log directories."""
    found: dict[str, bytes] = {}

    def look(directory: str) -> None:
        for name in storage.names(directory):
            path = f"{directory}/{name}"
            if storage.is_directory(path):
                look(path)
            else:
                file = storage.open(path)
                found[path] = file.read(0, file.size())

    look("/data")
    return found
