"""Rules of transactions; each finds its own anomalies.

A transaction is *visible* if one of its records is in the final log of a reader of
committed records. All records of a committed transaction must be visible, none of an
aborted one, and all or none of one with an unknown outcome.

A reader of several partitions may see a transaction in one of them earlier than in
another, as in Kafka. Transactions are atomic at the end, not at each instant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Final

from broker.protocol.topic_partition import TopicPartition
from simulation.anomalies import (
    Anomaly,
    Check,
    describe_read,
    describe_replica,
    describe_send,
    grouped,
    name_of,
)
from simulation.histories import (
    UNKNOWN_OFFSET,
    History,
    Place,
    Read,
    Replica,
    Send,
    Transaction,
)

_Values = dict[TopicPartition, set[bytes]]


def aborted_reads(history: History) -> Iterator[Anomaly]:
    """Find records of aborted transactions that were read as committed (G1a)."""
    for read, transaction in _transactional_reads(history):
        if transaction.outcome == "aborted":
            what = f"{describe_read(read)}: {transaction.name} was aborted"
            yield Anomaly("aborted-read", what)


def precommitted_reads(history: History) -> Iterator[Anomaly]:
    """Find records read as committed before their commit was called."""
    for read, transaction in _transactional_reads(history):
        if transaction.outcome != "aborted" and read.at_ns < transaction.ends_ns:
            what = f"{describe_read(read)}: {_ended(transaction)}"
            yield Anomaly("precommitted-read", what)


def partial_transactions(history: History) -> Iterator[Anomaly]:
    """Find committed or visible transactions of which records are missing.

    ``torn-transaction``: other records are visible. ``lost-transaction``: none is.
    """
    values = _committed_values(history)
    for transaction, sends in _sends_by_transaction(history):
        if transaction.outcome == "aborted":
            continue
        visible, missing = _visible(values, sends)
        if missing and (visible or transaction.outcome == "committed"):
            kind = "torn-transaction" if visible else "lost-transaction"
            what = f"{_ended(transaction)} lacks {describe_send(missing[0])}"
            yield Anomaly(kind, what)


def zombies(history: History) -> Iterator[Anomaly]:
    """Find transactions that a producer committed after another had taken its id."""
    values = _committed_values(history)
    by_id = dict(grouped(history.initializations, attrgetter("transactional_id")))
    for transaction, sends in _sends_by_transaction(history):
        inits = by_id.get(transaction.transactional_id, [])
        own = next((it for it in inits if it.producer == transaction.producer), None)
        successors = (
            it
            for it in inits
            if own is not None
            and it.invoked_ns > own.answered_ns
            and it.answered_ns < transaction.ends_ns
        )
        successor = next(successors, None)
        if successor is None or transaction.outcome == "aborted":
            continue
        if transaction.outcome == "committed" or _visible(values, sends)[0]:
            what = (
                f"{_ended(transaction)}; {successor.producer} had "
                f"{successor.transactional_id} at {successor.answered_ns / 1e9:.3f} s"
            )
            yield Anomaly("zombie-commit", what)


def exactly_once(history: History) -> Iterator[Anomaly]:
    """Find records whose results and offsets disagree (read, process, write).

    ``processed-twice``: one record has two visible results. ``skipped-input``: it has
    none, but the group's final offset is beyond it. ``offset-behind``: it has one, but
    the group's final offset is not beyond it, so it would be processed again.
    """
    if not history.committed_finals:
        return
    groups = {each.name: each.group for each in history.transactions if each.group}
    values = _committed_values(history)
    results: dict[tuple[str, Place], list[bytes]] = defaultdict(list)
    for send in history.sends:
        group = groups.get(send.transaction)
        if group and send.source is not None and send.value in values[send.partition]:
            results[group, send.source].append(send.value)
    for (group, source), found in results.items():
        if len(found) > 1:
            what = f"{source[1]} of {name_of(source[0])} by {group} as {found}"
            yield Anomaly("processed-twice", what)
    finals = {(it.group, it.partition): it.offset for it in history.committed}
    logs = {final.partition: final for final in history.finals}
    for (group, partition), end in finals.items():
        if group not in groups.values() or partition not in logs:
            continue
        for offset, value in logs[partition].records:
            is_done = (group, (partition, offset)) in results
            if is_done != (offset < end):
                kind = "offset-behind" if is_done else "skipped-input"
                what = (
                    f"{value!r} at {offset} of {name_of(partition)}, the offset of "
                    f"{group} is {end}"
                )
                yield Anomaly(kind, what)


def stable_offsets(history: History) -> Iterator[Anomaly]:
    """Find last stable offsets that go back, or beyond the high watermark."""
    observations = [
        it for it in history.replicas if it.last_stable_offset != UNKNOWN_OFFSET
    ]
    for observation in observations:
        if observation.last_stable_offset > observation.high_watermark:
            yield Anomaly("stable-offset-outside", describe_replica(observation))
    key = attrgetter("broker", "incarnation", "partition")
    for _, own in grouped(observations, key):
        for one, other in pairwise(own):
            if other.last_stable_offset < one.last_stable_offset:
                what = f"from {one.last_stable_offset}: {describe_replica(other)}"
                yield Anomaly("stable-offset-back", what)


def open_transactions_passed(history: History) -> Iterator[Anomaly]:
    """Find last stable offsets beyond a record of an open transaction.

    Only committed transactions count: their producer alone has ended them.
    """
    observations: dict[TopicPartition, list[Replica]] = defaultdict(list)
    for observation in history.replicas:
        if observation.last_stable_offset != UNKNOWN_OFFSET:
            observations[observation.partition].append(observation)
    at_ns = attrgetter("at_ns")
    for transaction, sends in _sends_by_transaction(history):
        if transaction.outcome != "committed":
            continue
        for send in sends:
            if send.outcome != "ok" or send.offset == UNKNOWN_OFFSET:
                continue
            seen = observations[send.partition]
            first = bisect_left(seen, send.answered_ns, key=at_ns)
            last = bisect_left(seen, transaction.ends_ns, key=at_ns)
            for observation in seen[first:last]:
                if observation.last_stable_offset > send.offset:
                    what = f"{describe_send(send)}: {describe_replica(observation)}"
                    yield Anomaly("stable-offset-passed", what)


TRANSACTION_CHECKS: Final[tuple[Check, ...]] = (
    aborted_reads,
    precommitted_reads,
    partial_transactions,
    zombies,
    exactly_once,
    stable_offsets,
    open_transactions_passed,
)


# ---- shared parts ------------------------------------------------------------------


def _transactional_reads(history: History) -> Iterator[tuple[Read, Transaction]]:
    """Yield records read as committed, each with its transaction."""
    transactions = {each.name: each for each in history.transactions}
    named = {send.value: send.transaction for send in history.sends}
    for read in history.reads:
        transaction = transactions.get(named.get(read.value, ""))
        if read.committed_only and transaction is not None:
            yield read, transaction


def _sends_by_transaction(
    history: History,
) -> Iterator[tuple[Transaction, list[Send]]]:
    """Yield transactions with the records that their producers accepted."""
    accepted = (it for it in history.sends if it.transaction and it.outcome != "fail")
    sends = dict(grouped(accepted, attrgetter("transaction")))
    for transaction in history.transactions:
        yield transaction, sends.get(transaction.name, [])


def _committed_values(history: History) -> _Values:
    values: _Values = defaultdict(set)
    for final in history.committed_finals:
        values[final.partition].update(value for _, value in final.records)
    return values


def _visible(values: _Values, sends: list[Send]) -> tuple[list[Send], list[Send]]:
    """Return the records that are visible, and those that are missing."""
    read = [send for send in sends if send.partition in values]
    visible = [send for send in read if send.value in values[send.partition]]
    missing = [send for send in read if send.value not in values[send.partition]]
    return visible, missing


def _ended(transaction: Transaction) -> str:
    return (
        f"{transaction.name} ({transaction.outcome}, ended "
        f"{transaction.ends_ns / 1e9:.3f} to {transaction.answered_ns / 1e9:.3f} s)"
    )
