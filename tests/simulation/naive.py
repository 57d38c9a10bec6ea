"""Histories of a naive cluster: one list per partition, and no faults."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from broker.protocol.topic_partition import TopicPartition
from simulation.histories import (
    Commit,
    Committed,
    FinalLog,
    History,
    Initialization,
    Outcome,
    Read,
    Replica,
    Send,
    Transaction,
)

PARTITION = TopicPartition("t", 0)


def send(number: int, offset: int = -1, **changes: Any) -> Send:
    """Return a record acknowledged by all replicas, apart from ``changes``."""
    fields: dict[str, Any] = {
        "producer": "p",
        "number": number,
        "partition": PARTITION,
        "value": b"%d" % number,
        "acks": -1,
        "idempotent": True,
        "invoked_ns": number * 10,
        "answered_ns": number * 10 + 5,
        "outcome": "ok",
        "offset": offset,
    }
    return Send(**{**fields, **changes})


def read(offset: int, value: int, **changes: Any) -> Read:
    """Return a record read by a consumer."""
    fields: dict[str, Any] = {
        "consumer": "c",
        "session": 0,
        "poll": offset,
        "partition": PARTITION,
        "offset": offset,
        "value": b"%d" % value,
        "at_ns": 1000,
    }
    return Read(**{**fields, **changes})


def commit(offset: int, start: int, end: int, outcome: Outcome = "ok") -> Commit:
    """Return a commit of group g, invoked at ``start`` and answered at ``end``."""
    return Commit(
        group="g",
        partition=PARTITION,
        offset=offset,
        invoked_ns=start,
        answered_ns=end,
        outcome=outcome,
    )


def committed(offset: int, start: int, end: int) -> Committed:
    """Return an OffsetFetch of group g with this committed offset."""
    return Committed(
        group="g",
        partition=PARTITION,
        offset=offset,
        invoked_ns=start,
        answered_ns=end,
    )


def look(end: int, **changes: Any) -> Replica:
    """Return an observation of a leader whose whole log is committed."""
    fields: dict[str, Any] = {
        "broker": 0,
        "incarnation": 0,
        "partition": PARTITION,
        "is_leader": True,
        "leader_epoch": 1,
        "high_watermark": end,
        "log_start_offset": 0,
        "log_end_offset": end,
        "isr": (0,),
        "partition_epoch": 1,
        "min_isr": 1,
        "at_ns": end,
    }
    return Replica(**{**fields, **changes})


def final(*values: int, start: int = 0) -> FinalLog:
    """Return a final log with these values at consecutive offsets."""
    records = tuple((start + at, b"%d" % it) for at, it in enumerate(values))
    return FinalLog(partition=PARTITION, log_start_offset=start, records=records)


def transaction(number: int, **changes: Any) -> Transaction:
    """Return a transaction committed at 500 ns, apart from ``changes``."""
    fields: dict[str, Any] = {
        "name": f"p/{number}",
        "transactional_id": "x",
        "producer": "p",
        "ends_ns": 500,
        "answered_ns": 510,
        "outcome": "committed",
    }
    return Transaction(**{**fields, **changes})


def sent_in(number: int, value: int, offset: int = -1, **changes: Any) -> Send:
    """Return a record of a transaction."""
    return send(value, offset, transaction=f"p/{number}", **changes)


def initialization(producer: str, start: int) -> Initialization:
    """Return a producer's initialization of the transactional id, taking 10 ns."""
    return Initialization(
        transactional_id="x",
        producer=producer,
        invoked_ns=start,
        answered_ns=start + 10,
    )


def clean_history(rng: random.Random) -> History:
    """Return a history of a cluster without faults."""
    history = History()
    for index in range(rng.randint(1, 3)):
        _fill(history, TopicPartition("t", index), rng)
    _transact(history, rng)
    return history


def _transact(history: History, rng: random.Random) -> None:
    """Add sequential transactions, each with a record in some partitions."""
    logs: dict[TopicPartition, list[tuple[int, bytes]]] = {
        TopicPartition("out", index): [] for index in range(2)
    }
    committed = {partition: list(log) for partition, log in logs.items()}
    ends = dict.fromkeys(logs, 0)
    now = 1_000
    for number in range(rng.randint(0, 8)):
        outcome = rng.choice(("committed", "aborted", "unknown"))
        visible = outcome == "committed" or (
            outcome == "unknown" and rng.random() < 0.5
        )
        ends_ns = now + 50
        for partition, log in logs.items():
            value = b"%s-%d" % (f"x{partition.partition}".encode(), number)
            sent = sent_in(number, number, ends[partition], partition=partition)
            history.sends.append(
                replace(sent, value=value, invoked_ns=now, answered_ns=now + 5)
            )
            log.append((ends[partition], value))
            # The last stable offset is below the record, then above it and its marker.
            for at_ns, stable in ((now + 9, 0), (ends_ns + 9, 2)):
                seen = look(ends[partition] + 2, at_ns=at_ns)
                stable += ends[partition]
                history.replicas.append(
                    replace(seen, partition=partition, last_stable_offset=stable)
                )
            if visible:
                committed[partition].append(log[-1])
            ends[partition] += 2
        history.transactions.append(
            transaction(
                number, ends_ns=ends_ns, answered_ns=ends_ns + 5, outcome=outcome
            )
        )
        now += 100
    for finals, read_logs in (
        (history.finals, logs),
        (history.committed_finals, committed),
    ):
        for partition, records in read_logs.items():
            log_read = FinalLog(
                partition=partition, log_start_offset=0, records=tuple(records)
            )
            finals.append(log_read)
    for partition, records in committed.items():
        for offset, value in records:
            given = read(offset, 0, consumer="committed", at_ns=now)
            given = replace(given, partition=partition, committed_only=True)
            history.reads.append(replace(given, value=value))


def _fill(history: History, partition: TopicPartition, rng: random.Random) -> None:
    log: list[bytes] = []
    for number in range(rng.randint(0, 12)):
        _write(history, partition, number, log, rng)
        _look(history, partition, len(log), number, rng)
    start = rng.randint(0, len(log)) if rng.random() < 0.3 else 0
    records = tuple(enumerate(log))[start:]
    history.finals.append(
        FinalLog(partition=partition, log_start_offset=start, records=records)
    )
    for session in range(rng.randint(0, 3)):
        first, per_poll = rng.randint(0, len(log)), rng.randint(1, 3)
        for offset in range(first, rng.randint(first, len(log))):
            given = read(offset, 0, session=session, poll=offset // per_poll)
            history.reads.append(replace(given, partition=partition, value=log[offset]))
    _commit(history, partition, len(log), rng)


def _write(
    history: History,
    partition: TopicPartition,
    number: int,
    log: list[bytes],
    rng: random.Random,
) -> None:
    sent = replace(
        send(number, producer=rng.choice("pq"), acks=rng.choice((-1, 1))),
        partition=partition,
        value=b"%d-%d" % (partition.partition, number),
        outcome=rng.choice(("ok", "ok", "unknown", "fail")),
    )
    # A record that only the leader has acknowledged may be lost with the leader.
    lost = sent.acks == 1 and rng.random() < 0.2
    written = sent.outcome == "ok" or (sent.outcome == "unknown" and rng.random() < 0.5)
    if sent.outcome == "ok" and not lost:
        sent = replace(sent, offset=len(log))
    if written and not lost:
        log.append(sent.value)
    history.sends.append(replace(sent, idempotent=sent.acks == -1))


def _look(
    history: History, partition: TopicPartition, end: int, at: int, rng: random.Random
) -> None:
    for broker in range(2):
        if rng.random() < 0.5:
            seen = look(end, broker=broker, is_leader=broker == 0, at_ns=at)
            history.replicas.append(replace(seen, partition=partition))


def _commit(
    history: History, partition: TopicPartition, end: int, rng: random.Random
) -> None:
    """Add sequential commits, with OffsetFetches between them."""
    standing = -1
    for now in range(0, 10 * rng.randint(0, 6), 10):
        if rng.random() < 0.5:
            standing = rng.randint(0, end)
            done = commit(standing, now, now + 5, rng.choice(("ok", "unknown")))
            history.commits.append(replace(done, partition=partition))
        else:
            told = committed(standing, now, now + 5)
            history.committed.append(replace(told, partition=partition))
