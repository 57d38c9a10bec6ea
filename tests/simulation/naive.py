"""Histories of a naive cluster: one list per partition, and nothing ever goes wrong."""

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
    Outcome,
    Read,
    Replica,
    Send,
)

PARTITION = TopicPartition("t", 0)


def send(number: int, offset: int = -1, **changes: Any) -> Send:
    """Return a record that was acknowledged by all, unless told otherwise."""
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
    """Return a record that a consumer was given."""
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
    """Return a commit of group g, from one time to another."""
    return Commit(
        group="g",
        partition=PARTITION,
        offset=offset,
        invoked_ns=start,
        answered_ns=end,
        outcome=outcome,
    )


def committed(offset: int, start: int, end: int) -> Committed:
    """Return what group g was told that it had committed."""
    return Committed(
        group="g",
        partition=PARTITION,
        offset=offset,
        invoked_ns=start,
        answered_ns=end,
    )


def look(end: int, **changes: Any) -> Replica:
    """Return a look at a leader that has committed all it has."""
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
    """Return a log of these values, one after the other."""
    records = tuple((start + at, b"%d" % it) for at, it in enumerate(values))
    return FinalLog(partition=PARTITION, log_start_offset=start, records=records)


def clean_history(rng: random.Random) -> History:
    """Return what may be seen of a cluster in which all goes well."""
    history = History()
    for index in range(rng.randint(1, 3)):
        _fill(history, TopicPartition("t", index), rng)
    return history


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
    # What the leader alone has acknowledged may go with it.
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
    """Commit one after the other; in between somebody asks."""
    standing = -1
    for now in range(0, 10 * rng.randint(0, 6), 10):
        if rng.random() < 0.5:
            standing = rng.randint(0, end)
            done = commit(standing, now, now + 5, rng.choice(("ok", "unknown")))
            history.commits.append(replace(done, partition=partition))
        else:
            told = committed(standing, now, now + 5)
            history.committed.append(replace(told, partition=partition))
