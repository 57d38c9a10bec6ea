"""A log directory has one broker: before the first look into it, until the last write.

Two of them on one directory, as where a supervisor starts the next before the last one
has ended, or a file of settings was copied.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.disk.checkpoints import META_PROPERTIES
from broker.disk.directory_locks import DirectoryLocks
from broker.disk.files import RealStorage
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import MemoryStorage
from broker.disk.storage import Storage, join
from broker.protocol.errors import ConfigError, UncleanStop
from tests.broker.apis.broker_world import NONE, World

ONE, TWO = "/data/one", "/data/two"
TAKEN = "a directory no other broker uses"


@pytest.mark.parametrize("real", [False, True], ids=["memory", "files"])
def test_a_directory_lock_has_one_holder_until_release(
    real: bool, tmp_path: Path
) -> None:
    storage: Storage = RealStorage() if real else MemoryStorage()
    own, shared = (str(tmp_path / name) for name in ("own", "deep/er/shared"))
    first = DirectoryLocks(storage, LogDirs([shared]))
    second = DirectoryLocks(storage, LogDirs([own, shared]))
    first.take()
    with pytest.raises(ConfigError, match=TAKEN) as refused:
        second.take()
    assert (refused.value.key, refused.value.found) == ("log.dirs", shared)
    # Who is refused keeps nothing.
    alone = DirectoryLocks(storage, LogDirs([own]))
    alone.take()
    alone.release()
    first.release()
    second.take()
    with pytest.raises(ConfigError, match=TAKEN):
        first.take()


def test_nothing_is_written_into_a_directory_that_another_holds() -> None:
    """Not even where the other has not come to write whose directory it is."""
    storage = MemoryStorage()
    for directory in (ONE, TWO):
        storage.make_directory(directory)
    held = storage.lock(join(TWO, ".lock"))
    with pytest.raises(ConfigError, match=TAKEN):
        World({"log.dirs": f"{ONE},{TWO}"}, storage)
    assert storage.names(TWO) == [".lock"]
    # Nor is the other directory bound to a cluster that does not come to be.
    assert META_PROPERTIES not in storage.names(ONE)
    del held


def test_a_start_finds_the_state_of_the_last_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last one ends between the first step of a start and the lock."""
    first = World({"log.dirs": ONE})
    first.create("early")
    storage = first.storage
    take = storage.lock

    def lock(path: str) -> object:
        monkeypatch.undo()
        first.create("late", retention_ms="1000")
        assert first.produce("late", b"v").error_code is NONE
        first.broker.close()
        return take(path)

    monkeypatch.setattr(storage, "lock", lock)
    second = World({"log.dirs": ONE}, storage)
    topics = second.broker.coordinator.admin.topics
    assert set(topics) == {"early", "late"}
    # It is not found among the logs, which know nothing of configs.
    assert topics["late"].configs == {"retention.ms": "1000"}
    assert second.produce("late", b"w").base_offset == 1


def test_a_stop_that_a_disk_spoils_lets_go_of_all_directories() -> None:
    world = World({"log.dirs": f"{ONE},{TWO}"})
    world.broker.log_dirs.take_offline(TWO, OSError("gone"))
    with pytest.raises(UncleanStop, match="is offline"):
        world.broker.close()
    World(world.settings, world.storage)
