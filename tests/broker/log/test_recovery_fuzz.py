"""Any damage to the files of a log: the log opens consistently, or is refused.

A log of several segments is written, flushed and perhaps stopped in order; then bytes
of its files are changed, cut or added, or files are lost. The opened log contains
appended records only: damage may lose a record and never invent one. (The CRC does not
cover a base offset; damage to it alone may move a record, here as in Kafka.)
"""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.disk.checkpoints import MalformedCheckpoint
from broker.disk.storage import join
from broker.log import flushing
from broker.log import log_reading as reading
from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import split_batches
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    batch,
    decoded,
    disk,
    everything,
    open_log,
)

CONFIG = {"segment_bytes": 400, "index_interval_bytes": 100}
RECORDS = {offset: b"record %d" % offset for offset in range(20)}


def written(*, clean):
    """Return a disk with the log of ``RECORDS``, and its recovery point."""
    storage = disk()
    log = open_log(storage, **CONFIG)
    for offset, value in RECORDS.items():
        sequence = {"producer_id": 7, "epoch": 0, "sequence": offset // 2}
        log.append(
            batch([value], **(sequence if not offset % 2 else {})), offset // 9, NOW_MS
        )
        if offset == 12:
            flushing.flush(log)
    recovery_point = log.recovery_point
    if clean:
        flushing.settle(log)
        recovery_point = log.recovery_point
    return storage.after_kill(), recovery_point


NAMES = sorted(
    {name for clean in (False, True) for name in written(clean=clean)[0].names(HOME)}
)

positions = st.integers(0, 600)
damages = st.one_of(
    st.tuples(
        st.just("change"), st.sampled_from(NAMES), positions, st.binary(max_size=40)
    ),
    st.tuples(st.just("cut"), st.sampled_from(NAMES), positions),
    st.tuples(st.just("add"), st.sampled_from(NAMES), st.binary(max_size=100)),
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
    st.tuples(st.just("swap"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
)


def do(storage, damage):
    """Damage a file, if it exists."""
    kind, name, *how = damage
    try:
        file = storage.open(join(HOME, name))
    except FileNotFoundError:
        return
    if kind == "change":
        position, new = how
        new = new[: max(file.size() - position, 0)]
        file.write(position, (new,), len(new)) if new else None
    elif kind == "cut":
        file.truncate(min(how[0], file.size()))
    elif kind == "add":
        file.write(file.size(), (how[0],), len(how[0])) if how[0] else None
    elif kind == "lose":
        storage.remove(join(HOME, name))
    else:
        with suppress(FileNotFoundError):
            other = storage.open(join(HOME, how[0]))
            content = other.read(0, other.size())
            file.truncate(0)
            file.write(0, (content,), len(content)) if content else None


def readable(log):
    """Yield values as a consumer reads them: it stops at the first corrupt batch."""
    offset = log.log_start_offset
    with suppress(KafkaError):
        while (piece := reading.read(log, offset, 1, log.log_end_offset)) is not None:
            asked = offset
            for header, records in split_batches(piece.read()):
                yield from (value for _, _, _, value in decoded(records))
                offset = header.last_offset + 1
            if offset <= asked:
                return


FIRST, SECOND, THIRD, LAST = (f"{base:020d}.log" for base in (0, 5, 10, 15))


@pytest.mark.parametrize("clean", [False, True])
@example(several=[("swap", "leader-epoch-checkpoint", "00000000000000000000.index")])
@example(several=[("cut", FIRST, 305)])
@example(several=[("add", FIRST, b"\0")])
@example(several=[("swap", LAST, THIRD)])
@example(several=[("change", LAST, 0, b"\1")])
@given(several=st.lists(damages, min_size=1, max_size=4))
def test_damage_to_what_is_believed_makes_nothing_up(clean, several):
    storage, recovery_point = written(clean=clean)
    for damage in several:
        do(storage, damage)
    opening = {"clean": clean, "recovery_point": recovery_point}
    with suppress(MalformedCheckpoint):
        log = open_log(storage, opening=opening, **CONFIG)
        assert set(readable(log)) <= set(RECORDS.values())
        goes_on(log)


@example(several=[("swap", FIRST, SECOND)])
@given(several=st.lists(damages, min_size=1, max_size=4))
def test_damage_to_what_is_not_believed_is_cut_off(several):
    storage, _ = written(clean=False)
    for damage in several:
        do(storage, damage)
    with suppress(MalformedCheckpoint):
        log = open_log(storage, **CONFIG)
        found = [(offset, value) for offset, _, _, value in decoded(everything(log))]
        assert found == sorted(found)
        assert {value for _, value in found} <= set(RECORDS.values())
        log.check()
        goes_on(log)


def goes_on(log):
    """Append a record, read it, stop, and find it after a restart."""
    end = log.log_end_offset
    with suppress(KafkaError):
        assert log.append(batch([b"next"]), 5, NOW_MS).base_offset == end
        assert decoded(reading.read(log, end, 1, end + 1).read())[-1][3] == b"next"
        flushing.settle(log)
        again = open_log(log.storage.disk, opening={"clean": True}, **CONFIG)
        assert again.log_end_offset == end + 1
