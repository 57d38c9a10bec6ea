"""A log directory belongs to one broker, from its first read to its last write.

Two brokers meet on one directory when a supervisor starts one before the previous has
ended, or after a settings file was copied.
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
    # A refused broker keeps no lock.
    alone = DirectoryLocks(storage, LogDirs([own]))
    alone.take()
    alone.release()
    first.release()
    second.take()
    with pytest.raises(ConfigError, match=TAKEN):
        first.take()


def test_nothing_is_written_into_a_directory_that_another_holds() -> None:
    """Not even if its holder has not yet written ``meta.properties``."""
    storage = MemoryStorage()
    for directory in (ONE, TWO):
        storage.make_directory(directory)
    held = storage.lock(join(TWO, ".lock"))
    with pytest.raises(ConfigError, match=TAKEN):
        World({"log.dirs": f"{ONE},{TWO}"}, storage)
    assert storage.names(TWO) == [".lock"]
    # The free directory is not bound to a cluster either.
    assert META_PROPERTIES not in storage.names(ONE)
    del held


def test_a_start_finds_the_state_of_the_last_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first broker ends after the second has begun to start, before its lock."""
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
    # The config comes from the registry: logs on disk have no topic configs.
    assert topics["late"].configs == {"retention.ms": "1000"}
    assert second.produce("late", b"w").base_offset == 1


def test_a_stop_that_a_disk_spoils_lets_go_of_all_directories() -> None:
    world = World({"log.dirs": f"{ONE},{TWO}"})
    world.broker.log_dirs.take_offline(TWO, OSError("gone"))
    with pytest.raises(UncleanStop, match="is offline"):
        world.broker.close()
    World(world.settings, world.storage)
