"""Real directories whose files are of the wrong kind, damaged or removed while in use.

A start refuses ``log.dirs`` or continues without the directory, and never crashes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from broker.disk import checkpoints
from broker.disk.files import RealStorage
from broker.disk.identity import known_broker_id
from broker.disk.memory import Faults, MemoryStorage
from broker.log.steps import run
from broker.protocol.errors import ConfigError, ErrorCode
from tests.broker.apis.broker_world import NONE, World

FILES: Final = (
    checkpoints.META_PROPERTIES,
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
    "doorkeeper-cluster.json",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
)


def settings(home: Path) -> dict[str, str]:
    return {"log.dirs": f"{home}/one,{home}/two"}


def filled(home: Path) -> World:
    """Return a broker with partition 0 in directory one and 1 in two."""
    world = World(settings(home), RealStorage())
    world.create("t", 2)
    for partition in (0, 1):
        assert world.produce("t", b"v", partition=partition).error_code is NONE
    run(world.broker.logs.checkpoint(lambda key: 1))
    return world


def left_by_a_broker(home: Path) -> Path:
    """Return a copy of a broker's directories; the broker locks its own."""
    filled(home / "former")
    return Path(shutil.copytree(home / "former", home / "left"))


def a_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def a_link_to_itself(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path)


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x00 garbage\n")


@pytest.mark.parametrize("make", [a_directory, a_link_to_itself])
@pytest.mark.parametrize("name", FILES)
def test_a_directory_whose_file_cannot_be_opened_is_offline(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    home = left_by_a_broker(tmp_path)
    make(home / "one" / name)
    world = World(settings(home), RealStorage())
    assert list(world.broker.log_dirs.offline) == [f"{home}/one"]
    codes = [world.produce("t", b"w", partition=n).error_code for n in (0, 1)]
    assert codes == [ErrorCode.kafka_storage_error, NONE]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_understood_stops_the_start(
    tmp_path: Path, name: str
) -> None:
    home = left_by_a_broker(tmp_path)
    garbage(home / "one" / name)
    with pytest.raises(ConfigError, match=r"log\.dirs") as refused:
        World(settings(home), RealStorage())
    assert str(home / "one" / name) in str(refused.value)


@pytest.mark.parametrize("name", ["one", "one/t-0"])
def test_a_file_in_the_place_of_a_directory_costs_that_directory_at_most(
    tmp_path: Path, name: str
) -> None:
    home = left_by_a_broker(tmp_path)
    shutil.rmtree(home / name)
    garbage(home / name)
    world = World(settings(home), RealStorage())
    assert world.broker.log_dirs.online[-1] == f"{home}/two"
    codes = [world.produce("t", b"w", partition=n).error_code for n in (0, 1)]
    assert codes == [ErrorCode.kafka_storage_error, NONE]


def test_a_directory_that_vanishes_is_offline_with_the_next_checkpoint(
    tmp_path: Path,
) -> None:
    world = filled(tmp_path)
    (tmp_path / "one").rename(tmp_path / "elsewhere")
    world.pass_ms(61_000)
    assert list(world.broker.log_dirs.offline) == [f"{tmp_path}/one"]
    assert world.produce("t", b"w", partition=1).error_code is NONE
    assert not (tmp_path / "one").exists()


def test_a_generated_broker_id_is_not_read_from_damaged_properties(
    tmp_path: Path,
) -> None:
    garbage(tmp_path / checkpoints.META_PROPERTIES)
    with pytest.raises(ConfigError, match=r"log\.dirs: .*meta\.properties"):
        known_broker_id(RealStorage(), [str(tmp_path)])


@pytest.mark.parametrize("number", ["9" * 5000, "\u0663"], ids=ascii)
def test_a_broker_id_that_is_no_number_is_refused(tmp_path: Path, number: str) -> None:
    text = f"version=0\nbroker.id={number}\n"
    (tmp_path / checkpoints.META_PROPERTIES).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broker\.id: .*meta\.properties"):
        known_broker_id(RealStorage(), [str(tmp_path)])


def test_a_damaged_compacted_segment_stops_the_start_and_its_sources_stay(
    tmp_path: Path,
) -> None:
    home = left_by_a_broker(tmp_path)
    swap = home / "one" / "t-0" / f"{0:020}.log.swap"
    swap.write_bytes(bytes(100))
    source = swap.with_suffix("")
    before = source.read_bytes()
    with pytest.raises(ConfigError, match=r"log\.dirs: ") as refused:
        World(settings(home), RealStorage())
    assert str(swap) in str(refused.value)
    assert source.read_bytes() == before


def test_a_stranger_s_swap_file_is_left_alone(tmp_path: Path) -> None:
    home = left_by_a_broker(tmp_path)
    garbage(home / "one" / "t-0" / "x.log.swap")
    world = World(settings(home), RealStorage())
    assert world.produce("t", b"w", partition=0).error_code is NONE


def test_a_path_too_long_for_any_file_system_is_refused(tmp_path: Path) -> None:
    deep = f"{tmp_path}/{'x/' * 3000}y"
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        World({"log.dirs": deep}, RealStorage())
    assert not list(tmp_path.iterdir())


class FullForCheckpoints(Faults):
    """Refuses writes of checkpoints as a full disk does."""

    def count(self, call: str) -> None:
        self.calls += 1
        if call.startswith("write ") and "-checkpoint" in call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), call)


def test_no_room_for_a_checkpoint_costs_no_directory() -> None:
    """Kafka takes the directory offline; here the next round retries."""
    world = World({}, MemoryStorage(FullForCheckpoints()))
    world.create("t")
    world.produce("t", b"v")
    world.pass_ms(61_000)
    assert not world.broker.log_dirs.offline
    assert world.produce("t", b"w").error_code is NONE
    world.storage.faults = Faults()
    world.pass_ms(61_000)
    (home,) = world.broker.log_dirs.online
    found = checkpoints.read_offsets(world.storage, home, checkpoints.HIGH_WATERMARKS)
    assert found["t", 0] == 2
