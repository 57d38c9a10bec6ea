"""Sparse indexes compared with sorted lists, and their bytes with Kafka's formats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.disk.memory import MemoryStorage
from broker.disk.storage import read_whole
from broker.log.segments.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex

PATH = "/data/0.index"


@pytest.fixture
def storage():
    return new_storage()


def new_storage():
    storage = MemoryStorage()
    storage.make_directory("/data")
    return storage


def test_offset_entries_are_kafkas_bytes(storage):
    index = SparseIndex(storage, PATH, OFFSET_ENTRY)
    index.add(9, 4097)
    index.add(300, 70000)
    index.write_out()
    assert read_whole(storage, PATH) == bytes.fromhex(
        "00000009 00001001 0000012c 00011170"
    )


def test_time_entries_are_kafkas_bytes(storage):
    index = SparseIndex(storage, PATH, TIME_ENTRY)
    index.add(1_700_000_000_000, 258)
    index.write_out()
    assert read_whole(storage, PATH) == bytes.fromhex("0000018bcfe56800 00000102")


steps = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=30)


@given(
    blocks=st.lists(st.tuples(steps, st.sampled_from(["write", "spill", "load"]))),
    probes=st.lists(st.integers(-1, 3000), max_size=8),
)
def test_floor_is_that_of_a_sorted_list(blocks, probes):
    storage = new_storage()
    index = SparseIndex(storage, PATH, OFFSET_ENTRY)
    model, first, second = [], 0, 0
    for block, then in blocks:
        for more_first, more_second in block:
            first, second = first + more_first, second + more_second
            index.add(first, second)
            model.append((first, second))
        if then == "spill":
            index.spill()
        else:
            index.write_out()
        if then == "load":
            index = SparseIndex(storage, PATH, OFFSET_ENTRY)
            assert index.load()
    assert len(index) == len(model)
    assert index.last() == (model[-1] if model else None)
    # Also probe the last entries themselves; they are still in memory.
    edges = [entry[0] + by for entry in model[-6:] for by in (-1, 0)]
    for probe in (*probes, *edges):
        below = [entry for entry in model if entry[0] <= probe]
        assert index.floor(probe) == (below[-1] if below else None)
    index.check()


@pytest.mark.parametrize("on_file", [0, 1, 512, 1024, 5000])
def test_a_large_index_is_searched_on_file_and_in_memory(storage, on_file):
    index = SparseIndex(storage, PATH, OFFSET_ENTRY)
    for number in range(5000):
        index.add(3 * number, 10 * number)
        if number + 1 == on_file:
            index.write_out()
        index.spill()
    for probe in (0, 1, 2, 3, 1535, 1536, 7001, 14997, 20000):
        number = min(probe // 3, 4999)
        assert index.floor(probe) == (3 * number, 10 * number)
    assert index.floor(-1) is None


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("keep", [0, 1, 700, 1500])
def test_truncate_removes_from_a_value_on(storage, column, written, keep):
    index = SparseIndex(storage, PATH, OFFSET_ENTRY)
    for number in range(1500):
        index.add(2 * number, 2 * number)
        index.spill()
    if written:
        index.write_out()
    index.truncate(2 * keep - 1, column=column)
    assert len(index) == keep
    index.add(9000, 9000)
    index.write_out()
    again = SparseIndex(storage, PATH, OFFSET_ENTRY)
    assert again.load()
    assert len(again) == keep + 1
    assert again.last() == (9000, 9000)


def test_a_malformed_index_is_not_used(storage):
    index = SparseIndex(storage, PATH, OFFSET_ENTRY)
    assert not index.load()
    good = SparseIndex(storage, PATH, OFFSET_ENTRY)
    good.add(5, 100)
    good.add(9, 200)
    file = good.write_out()
    assert index.load()
    file.write(16, (b"\0\0\0",), 3)
    assert not index.load()
    # Kafka's preallocated file after a crash: zeros behind the entries.
    file.write(16, (bytes(80),), 80)
    assert not index.load()


def test_an_error_while_spilling_loses_no_entry(storage):
    from broker.disk.memory import Faults

    index = SparseIndex(storage, PATH, OFFSET_ENTRY)
    for number in range(1024):
        index.add(number, number)
    for at in (1, 2):
        storage.faults = Faults(at, short=5)
        with pytest.raises(OSError, match="error"):
            index.spill()
        assert len(index) == 1024
    index.spill()
    index.write_out()
    again = SparseIndex(storage, PATH, OFFSET_ENTRY)
    assert again.load()
    assert [again.entry(n) for n in (0, 511, 512, 1023)] == [
        (0, 0),
        (511, 511),
        (512, 512),
        (1023, 1023),
    ]
