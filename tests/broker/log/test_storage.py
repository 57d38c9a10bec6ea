"""The contract of the real and the in-memory disk, and the additions of each."""

import errno
import inspect
import random

import pytest

from broker.disk.closable_storage import ClosableStorage
from broker.disk.disk_failures import LogUnavailable
from broker.disk.files import RealStorage
from broker.disk.memory import Crashed, Faults, MemoryStorage
from broker.disk.storage import (
    FileSlice,
    Storage,
    join,
    read_whole,
    remove_if_there,
    write_atomically,
)


class StorageContract:
    """Guarantees that a log needs; fixture ``disk`` returns (storage, directory)."""

    @pytest.fixture
    def disk(self):
        raise NotImplementedError

    def test_bytes_stand_where_they_were_written(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        file.write(0, (b"abc", memoryview(b"xdefx")[1:4]), 6)
        file.write(6, (bytearray(b"gh"),), 2)
        assert file.size() == 8
        assert file.read(2, 4) == b"cdef"
        file.write(1, (b"B",), 1)
        assert read_whole(storage, join(home, "a")) == b"aBcdefgh"

    def test_read_is_short_only_at_the_end(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        file.write(0, (b"abc",), 3)
        assert file.read(1, 100) == b"bc"
        assert file.read(3, 1) == b""
        assert file.read(1000, 1) == b""

    def test_write_behind_the_end_leaves_zeros(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        file.write(3, (b"x",), 1)
        assert file.read(0, 10) == b"\0\0\0x"

    def test_truncate_cuts(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        file.write(0, (b"abcdef",), 6)
        file.truncate(2)
        assert (file.size(), file.read(0, 9)) == (2, b"ab")

    def test_open_does_not_create_unless_told(self, disk):
        storage, home = disk
        with pytest.raises(FileNotFoundError):
            storage.open(join(home, "a"))
        storage.open(join(home, "a"), create=True)
        assert storage.names(home) == ["a"]
        with pytest.raises(FileNotFoundError):
            storage.open(join(home, "no/a"), create=True)

    def test_create_keeps_what_is_there(self, disk):
        storage, home = disk
        storage.open(join(home, "a"), create=True).write(0, (b"abc",), 3)
        assert storage.open(join(home, "a"), create=True).size() == 3

    def test_a_removed_file_stays_readable_for_its_holder(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        file.write(0, (b"abcdef",), 6)
        part = FileSlice(file, 2, 3)
        del file
        storage.remove(join(home, "a"))
        storage.open(join(home, "a"), create=True).write(0, (b"XXXXXX",), 6)
        assert part.read() == b"cde"

    def test_remove_misses_what_is_not_there(self, disk):
        storage, home = disk
        with pytest.raises(FileNotFoundError):
            storage.remove(join(home, "a"))
        assert not remove_if_there(storage, join(home, "a"))

    def test_rename_replaces_the_target(self, disk):
        storage, home = disk
        for name in ("a", "b"):
            storage.open(join(home, name), create=True).write(0, (name.encode(),), 1)
        storage.rename(join(home, "a"), join(home, "b"))
        assert storage.names(home) == ["b"]
        assert read_whole(storage, join(home, "b")) == b"a"

    def test_rename_of_a_directory_takes_its_content_along(self, disk):
        storage, home = disk
        storage.make_directory(join(home, "d/e"))
        storage.open(join(home, "d/e/f"), create=True)
        storage.rename(join(home, "d"), join(home, "g"))
        assert storage.names(home) == ["g"]
        assert storage.names(join(home, "g/e")) == ["f"]
        assert not storage.is_directory(join(home, "d"))

    def test_directories_nest_and_may_exist(self, disk):
        storage, home = disk
        storage.make_directory(join(home, "d/e"))
        storage.make_directory(join(home, "d/e"))
        assert storage.is_directory(join(home, "d/e"))
        assert storage.names(join(home, "d")) == ["e"]
        with pytest.raises(OSError, match="not empty"):
            storage.remove_directory(join(home, "d"))
        storage.remove_directory(join(home, "d/e"))
        storage.remove_directory(join(home, "d"))
        assert storage.names(home) == []

    def test_names_are_sorted_and_need_a_directory(self, disk):
        storage, home = disk
        for name in ("b", "a", "c"):
            storage.open(join(home, name), create=True)
        assert storage.names(home) == ["a", "b", "c"]
        with pytest.raises(FileNotFoundError):
            storage.names(join(home, "d"))

    def test_sync_of_files_and_directories_is_accepted(self, disk):
        storage, home = disk
        storage.open(join(home, "a"), create=True).sync()
        storage.sync_directory(home)

    def test_write_atomically_replaces(self, disk):
        storage, home = disk
        write_atomically(storage, home, "a", b"long content")
        write_atomically(storage, home, "a", b"short")
        assert storage.names(home) == ["a"]
        assert read_whole(storage, join(home, "a")) == b"short"


class TestRealStorage(StorageContract):
    @pytest.fixture
    def disk(self, tmp_path):
        return RealStorage(), str(tmp_path)

    def test_a_slice_has_the_descriptor_to_send_from(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        assert FileSlice(file, 0, 0).fileno() == file.fileno() >= 0

    def test_a_large_write_is_whole(self, disk, monkeypatch):
        """The kernel may write fewer bytes than requested."""
        import broker.disk.files as files

        def three_bytes(fd, pieces, position):
            return real(fd, [b"".join(pieces)[:3]], position)

        real = files.os.pwritev
        monkeypatch.setattr(files.os, "pwritev", three_bytes)
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        file.write(1, (b"abcd", b"efgh"), 8)
        assert file.read(0, 100) == b"\0abcdefgh"


class TestClosableStorage(StorageContract):
    @pytest.fixture
    def disk(self):
        storage = MemoryStorage()
        storage.make_directory("/data/home")
        return ClosableStorage(storage), "/data/home"

    def test_closed_it_refuses_every_call_by_path(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        storage.close("gone")
        calls = [name for name in vars(Storage) if not name.startswith("_")]
        assert len(calls) == 10
        for name in calls:
            call = getattr(storage, name)
            arguments = ["x"] * sum(
                each.default is each.empty
                for each in inspect.signature(call).parameters.values()
            )
            with pytest.raises(LogUnavailable, match="gone"):
                call(*arguments)
        file.write(0, (b"still its holder's",), 18)
        assert file.read(0, 5) == b"still"


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def disk(self):
        storage = MemoryStorage()
        storage.make_directory("/data/home")
        return storage, "/data/home"

    def test_the_nth_call_fails_once(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        storage.faults = Faults(2, error=errno.ENOSPC, short=2)
        file.write(0, (b"abc",), 3)
        with pytest.raises(OSError, match="No space left"):
            file.write(3, (b"def",), 3)
        assert storage.faults.reached
        assert file.read(0, 9) == b"abcde"
        file.write(3, (b"xyz",), 3)
        assert file.read(0, 9) == b"abcxyz"

    def test_a_crash_lets_nothing_succeed_any_more(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        storage.faults = Faults(1, crash=True)
        for _ in range(2):
            with pytest.raises(Crashed):
                file.sync()

    def test_a_kill_keeps_all_writes(self, disk):
        storage, home = disk
        storage.open(join(home, "a"), create=True).write(0, (b"abc",), 3)
        left = storage.after_kill()
        assert read_whole(left, join(home, "a")) == b"abc"
        assert read_whole(storage, join(home, "a")) == b"abc"

    def test_power_loss_keeps_what_was_synced(self, disk):
        storage, home = disk
        file = storage.open(join(home, "a"), create=True)
        file.write(0, (b"abc",), 3)
        file.sync()
        for directory in ("/", "/data", home, ""):
            storage.sync_directory(directory)
        file.write(3, (b"def",), 3)
        contents, kept = set(), set()
        storage.open(join(home, "b"), create=True)
        for seed in range(200):
            left = storage.after_power_loss(random.Random(seed))
            contents.add(read_whole(left, join(home, "a")))
            kept.add(tuple(left.names(home)))
        assert all(content.startswith(b"abc") for content in contents)
        assert {b"abc", b"abcde", b"abcdef", b"abcd\0\0"} <= contents
        assert kept == {("a",), ("a", "b")}

    def test_power_loss_may_undo_what_was_not_synced(self, disk):
        storage, home = disk
        for directory in ("", "/", "/data"):
            storage.sync_directory(directory)
        write_atomically(storage, home, "a", b"old")
        storage.open(join(home, "a")).truncate(0)
        outcomes = {
            read_whole(storage.after_power_loss(random.Random(seed)), join(home, "a"))
            for seed in range(50)
        }
        assert outcomes == {b"old", b""}

    def test_write_atomically_survives_every_fault(self, disk):
        """A failure or crash at any call leaves the old content or the new."""
        at, done = 0, False
        while not done:
            at += 1
            for crash in (False, True):
                storage = MemoryStorage()
                storage.make_directory("/d")
                for directory in ("", "/"):
                    storage.sync_directory(directory)
                write_atomically(storage, "/d", "a", b"old")
                storage.faults = Faults(at, crash=crash, short=1)
                try:
                    write_atomically(storage, "/d", "a", b"new")
                except (OSError, Crashed):
                    expected = {b"old", b"new"}
                else:
                    expected, done = {b"new"}, True
                left = storage.after_power_loss(random.Random(at))
                assert read_whole(left, "/d/a") in expected
        assert at > 5
