"""Readability of logs by consumers: one malformed batch would stop them all."""

from __future__ import annotations

from broker.log.log import Log
from broker.protocol.records.batch import split_batches
from broker.protocol.records.batch_records import iter_records
from tests.broker.log.witness import decoded, everything
from tests.fuzzing.known import Broken


def check_readable(log: Log) -> None:
    """Raise unless aiokafka's reader and ours can read a log to its end."""
    content = everything(log)
    theirs = [each[:2] for each in decoded(content)]
    ours = [
        (record.offset, record.timestamp)
        for header, records in split_batches(content)
        for record in iter_records(header, records)
    ]
    if ours != theirs:
        raise Broken(f"{log.name} is not read alike by two consumers")
