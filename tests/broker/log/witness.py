"""Record batches as other clients write and read them: aiokafka and kafka-python."""

import struct
import warnings
from posixpath import dirname

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from crc32c import crc32c

from broker.disk.memory import MemoryStorage
from broker.disk.storage import join
from broker.log import log_reading as reading
from broker.log import times, trimming
from broker.log.segments.log_config import LogConfig
from broker.log.steps import run
from broker.log.upkeep import recovery

with warnings.catch_warnings():
    # The package uses a deprecated function of importlib.resources at import.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords as PythonRecords

NOW_MS = 1_700_000_000_000
HOME = "/data/topic-0"


def batch(
    values,
    *,
    codec=0,
    keys=None,
    timestamps=None,
    headers=(),
    producer_id=-1,
    epoch=-1,
    sequence=-1,
):
    """Return the batch that aiokafka builds for these values."""
    builder = DefaultRecordBatchBuilder(
        2, codec, False, producer_id, epoch, sequence, 1 << 30
    )
    for number, value in enumerate(values):
        key = keys[number] if keys else None
        time = timestamps[number] if timestamps else NOW_MS
        assert builder.append(number, time, key, value, list(headers)) is not None
    return bytes(builder.build())


def altered(batch, fields, *, new_crc=True):
    """Return a batch with other header fields: {position: (struct format, value)}."""
    changed = bytearray(batch)
    for position, (code, number) in fields.items():
        struct.pack_into(">" + code, changed, position, number)
    if new_crc:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def decoded(records):
    """Return (offset, timestamp, key, value) of all records, as aiokafka reads them."""
    found = []
    reader = AioRecords(bytes(records))
    while reader.has_next():
        each = reader.next_batch()
        assert each.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in each]
    return found


def decoded_by_kafka_python(records):
    """Return (offset, timestamp, key, value), as kafka-python reads them."""
    found = []
    reader = PythonRecords(bytes(records))
    while reader.has_next():
        each = reader.next_batch()
        assert each.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in each]
    return found


def disk(faults=None):
    """Return an in-memory disk whose directory ``/data`` is durable."""
    storage = MemoryStorage()
    storage.make_directory("/data")
    for directory in ("", "/"):
        storage.sync_directory(directory)
    storage.faults = faults or storage.faults
    return storage


def make_durably(storage, *directories):
    """Create log directories and sync their parents, as the broker does at start."""
    for directory in directories:
        storage.make_directory(directory)
        storage.sync_directory(dirname(directory))


def open_log(storage=None, *, now_ms=NOW_MS, opening=None, **config):
    """Return a log in memory; ``opening`` are arguments of `recovery.open_log`."""
    storage = storage or disk()
    return recovery.open_log(
        HOME, LogConfig(**config), storage, now_ms, **(opening or {})
    )


def everything(log):
    """Return the bytes of the whole log, with a consumer's reads."""
    content, offset = b"", log.log_start_offset
    while True:
        piece = reading.read(log, offset, 1, log.log_end_offset)
        if piece is None:
            return content
        data = piece.read()
        content += data
        base, _, delta = struct.unpack_from(">qi11xi", data)
        offset = base + delta + 1


def offsets(log):
    """Return the offset of each record of a log."""
    return [record[0] for record in decoded(everything(log))]


def values_of(log):
    """Return the value at each offset of a log."""
    return {offset: value for offset, _, _, value in decoded(everything(log))}


def found_at(log, timestamp):
    """Return the first record at or after a time."""
    return run(times.offset_for_timestamp(log, timestamp))


def found_newest(log):
    """Return the first record with the largest timestamp."""
    return run(times.offset_of_max_timestamp(log))


def stored(*batches, base=0):
    """Return batches as a log stores them, concatenated."""
    content, offset = b"", base
    for each in batches:
        content += altered(each, {0: ("q", offset), 12: ("i", 0)}, new_crc=False)
        offset += int.from_bytes(each[57:61])
    return content


def disk_with(files):
    storage = disk()
    storage.make_directory(HOME)
    for name, content in files.items():
        file = storage.open(join(HOME, name), create=True)
        file.write(0, (content,), len(content))
    return storage


def truncate_to(log, offset, now_ms):
    """Truncate a log and cut its file, as a follower does; return its new end."""
    producers = run(trimming.producers_before(log, offset))
    end = trimming.truncate_to(log, offset, now_ms, producers)
    run(trimming.cut_in_steps(log))
    return end
