"""Rules that every history must satisfy; each rule finds its own anomalies.

Most rules are those of Jepsen's checker of Kafka (``tests.kafka`` of jepsen-io/kafka),
whose names are kept where the anomaly is the same. Others are Kafka's own promises on
replication. A rule is a function of a `History` that yields an `Anomaly` for each case.
Rules of transactions are in `simulation.transaction_checkers`.

A record is *promised* if it was acknowledged to a producer with acks=all. The loss of a
record that only the leader acknowledged is no anomaly.
"""

from __future__ import annotations

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
    Commit,
    FinalLog,
    History,
    Send,
)
from simulation.transaction_checkers import TRANSACTION_CHECKS

ALL_REPLICAS: Final = -1
NO_OFFSET: Final = -1


def check(history: History) -> list[Anomaly]:
    """Return all anomalies of a history. Cost: O(n log n)."""
    rules = CHECKS + TRANSACTION_CHECKS
    return [anomaly for rule in rules for anomaly in rule(history)]


# ---- writes ------------------------------------------------------------------------


def lost_writes(history: History) -> Iterator[Anomaly]:
    """Find promised records that are missing in the final log.

    ``lost-write``: a record after it exists. ``unseen``: it is beyond all records.
    """
    finals, values = _finals(history), _final_values(history)
    for send in history.sends:
        final = finals.get(send.partition)
        if final is None or not _is_promised(send):
            continue
        deleted = 0 <= send.offset < final.log_start_offset
        if deleted or send.value in values[send.partition]:
            continue
        end = final.records[-1][0] + 1 if final.records else final.log_start_offset
        kind = "unseen" if send.offset >= end else "lost-write"
        yield Anomaly(kind, f"{describe_send(send)}; the log ends at {end}")


def duplicates(history: History) -> Iterator[Anomaly]:
    """Find records of idempotent producers that have two offsets."""
    idempotent = {send.value for send in history.sends if send.idempotent}
    for (partition, value), offsets in _offsets_of_values(history).items():
        if len(offsets) > 1 and value in idempotent:
            what = f"{value!r} at {sorted(offsets)} of {name_of(partition)}"
            yield Anomaly("duplicate", what)


def misplaced_values(history: History) -> Iterator[Anomaly]:
    """Find records in places to which no producer sent them.

    ``invented``: no producer sent it to any partition. ``strayed``: it was sent to
    another partition.
    """
    sent = {send.value: send.partition for send in history.sends}
    for partition, value in _offsets_of_values(history):
        if value not in sent:
            yield Anomaly("invented", f"{value!r} in {name_of(partition)}")
        elif sent[value] != partition:
            what = f"{value!r} of {name_of(sent[value])} in {name_of(partition)}"
            yield Anomaly("strayed", what)


def refused_writes_read(history: History) -> Iterator[Anomaly]:
    """Find records in the log that were reported to their producer as failed (G1a)."""
    failed = {send.value: send for send in history.sends if send.outcome == "fail"}
    for partition, value in _offsets_of_values(history):
        if value in failed:
            yield Anomaly(
                "G1a", f"{describe_send(failed[value])} is in {name_of(partition)}"
            )


def send_order(history: History) -> Iterator[Anomaly]:
    """Find reordered records of an idempotent producer in a partition.

    ``nonmonotonic-send``: by the offsets reported to it. ``reordered``: by the log.
    """
    idempotent = (send for send in history.sends if send.idempotent)
    places = {
        (final.partition, value): offset
        for final in history.finals
        for offset, value in final.records
    }
    for _, sends in grouped(idempotent, attrgetter("producer", "partition")):
        sends.sort(key=attrgetter("number"))
        acknowledged = [
            s for s in sends if s.outcome == "ok" and s.offset != UNKNOWN_OFFSET
        ]
        for one, other in pairwise(acknowledged):
            if one.offset >= other.offset:
                what = f"{describe_send(one)}, then {describe_send(other)}"
                yield Anomaly("nonmonotonic-send", what)
        found = [s for s in sends if (s.partition, s.value) in places]
        for one, other in pairwise(found):
            at, then = (places[it.partition, it.value] for it in (one, other))
            if at > then:
                first, second = describe_send(one), describe_send(other)
                what = f"{first} stands at {at}, {second} at {then}"
                yield Anomaly("reordered", what)


# ---- reads -------------------------------------------------------------------------


def inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    """Find offsets with two values, read or acknowledged with acks=all."""
    seen: dict[tuple[TopicPartition, int], set[bytes]] = defaultdict(set)
    for partition, offset, value in _sightings(history):
        seen[partition, offset].add(value)
    for (partition, offset), values in seen.items():
        if len(values) > 1:
            what = f"{sorted(values)} at {offset} of {name_of(partition)}"
            yield Anomaly("inconsistent-offsets", what)


def dirty_reads(history: History) -> Iterator[Anomaly]:
    """Find records that a consumer read and that are missing in the final log."""
    finals, values = _finals(history), _final_values(history)
    for read in history.reads:
        final = finals.get(read.partition)
        if final is None or read.offset < final.log_start_offset:
            continue
        if read.value not in values[read.partition]:
            yield Anomaly("dirty-read", describe_read(read))


def poll_order(history: History) -> Iterator[Anomaly]:
    """Find steps back and gaps in a consumer's records of a partition.

    Within one poll they are ``int-nonmonotonic-poll`` and ``int-poll-skip``, between
    polls of a session without ``int-``. Offsets without a known record are no gap. A
    reader of committed records must not skip offsets that another such reader has read.
    """
    known: dict[TopicPartition, set[int]] = defaultdict(set)
    for partition, offset, _ in _sightings(history):
        known[partition].add(offset)
    committed = _committed_offsets(history)
    sessions = attrgetter("consumer", "session", "partition")
    for (_, _, partition), reads in grouped(history.reads, sessions):
        for one, other in pairwise(reads):
            inside = "int-" if one.poll == other.poll else ""
            what = f"{describe_read(one)}, then {describe_read(other)}"
            if other.offset <= one.offset:
                yield Anomaly(f"{inside}nonmonotonic-poll", what)
                continue
            seen = (committed if other.committed_only else known)[partition]
            if seen.intersection(range(one.offset + 1, other.offset)):
                yield Anomaly(f"{inside}poll-skip", what)


# ---- groups ------------------------------------------------------------------------


def lost_commits(history: History) -> Iterator[Anomaly]:
    """Find answers about committed offsets that no commit in force explains.

    A commit is in force from its call until the acknowledgement of another commit that
    was called after its end. Before the first acknowledgement there may be none. An
    attempt that was given up may take effect at any later time: commits have no
    sequence number by which a coordinator could detect a late one, as in Kafka.
    """
    by_name = dict(grouped(history.commits, attrgetter("group", "partition")))
    for answer in history.committed:
        commits = by_name.get((answer.group, answer.partition), [])
        allowed = set(_in_force(commits, answer.invoked_ns, answer.answered_ns))
        if answer.offset not in allowed:
            what = (
                f"{answer.group} has {answer.offset} in {name_of(answer.partition)}, "
                f"expected one of {sorted(allowed)}"
            )
            yield Anomaly("lost-commit", what)


def _in_force(
    commits: list[Commit], invoked_ns: int, answered_ns: int
) -> Iterator[int]:
    ended = [
        each.invoked_ns
        for each in commits
        if each.outcome == "ok" and each.answered_ns < invoked_ns
    ]
    # A later acknowledged commit has replaced those that ended before its call.
    last_ns = max(ended, default=-1)
    if not ended:
        yield NO_OFFSET
    for each in commits:
        if each.outcome == "fail" or each.invoked_ns > answered_ns:
            continue
        given_up = each.outcome == "unknown" or each.repeated
        if given_up or each.answered_ns >= last_ns:
            yield each.offset


# ---- brokers -----------------------------------------------------------------------


def leaders(history: History) -> Iterator[Anomaly]:
    """Find two leaders of a partition under one epoch."""
    seen: dict[tuple[TopicPartition, int], int] = {}
    for look in history.replicas:
        if not look.is_leader:
            continue
        first = seen.setdefault((look.partition, look.leader_epoch), look.broker)
        if first != look.broker:
            what = f"brokers {first} and {look.broker} lead {describe_replica(look)}"
            yield Anomaly("two-leaders", what)


def steps_back(history: History) -> Iterator[Anomaly]:
    """Find values that decreased in one incarnation of a broker, and must not.

    These are leader epochs, high watermarks and log starts of any replica, and the log
    end of a leader within one epoch.
    """
    key = attrgetter("broker", "incarnation", "partition")
    for _, looks in grouped(history.replicas, key):
        for one, other in pairwise(looks):
            for kind, name in _ONLY_FORWARD.items():
                before, after = getattr(one, name), getattr(other, name)
                if after < before:
                    what = f"from {before} to {after}: {describe_replica(other)}"
                    yield Anomaly(kind, what)
            led_on = (
                one.is_leader
                and other.is_leader
                and one.leader_epoch == other.leader_epoch
            )
            if led_on and other.log_end_offset < one.log_end_offset:
                what = f"from {one.log_end_offset}: {describe_replica(other)}"
                yield Anomaly("leader-lost-records", what)


_ONLY_FORWARD: Final = {
    "epoch-back": "leader_epoch",
    "high-watermark-back": "high_watermark",
    "log-start-back": "log_start_offset",
}


def watermarks(history: History) -> Iterator[Anomaly]:
    """Find high watermarks outside of their logs, or moved with too small an ISR.

    In the second case consumers read records although acks=all would be refused.
    """
    for look in history.replicas:
        if not look.log_start_offset <= look.high_watermark <= look.log_end_offset:
            yield Anomaly("high-watermark-outside", describe_replica(look))
    # Observations of one leader with one ISR.
    led = [look for look in history.replicas if look.is_leader]
    isrs = attrgetter(
        *("broker", "incarnation", "partition", "leader_epoch", "partition_epoch")
    )
    for _, looks in grouped(led, isrs):
        for one, other in pairwise(looks):
            too_few = len(one.isr) < min(one.min_isr, other.min_isr)
            if too_few and other.high_watermark > one.high_watermark:
                what = f"{one.isr} of {one.min_isr} in sync: {describe_replica(other)}"
                yield Anomaly("high-watermark-under-min-isr", what)


CHECKS: Final[tuple[Check, ...]] = (
    lost_writes,
    duplicates,
    misplaced_values,
    refused_writes_read,
    send_order,
    inconsistent_offsets,
    dirty_reads,
    poll_order,
    lost_commits,
    leaders,
    steps_back,
    watermarks,
)


# ---- shared parts ------------------------------------------------------------------


def _is_promised(send: Send) -> bool:
    return send.outcome == "ok" and send.acks == ALL_REPLICAS


def _finals(history: History) -> dict[TopicPartition, FinalLog]:
    return {final.partition: final for final in history.finals}


def _final_values(history: History) -> dict[TopicPartition, set[bytes]]:
    return {
        final.partition: {value for _, value in final.records}
        for final in history.finals
    }


def _sightings(history: History) -> Iterator[tuple[TopicPartition, int, bytes]]:
    """Yield (partition, offset, value) of promised, read and final records."""
    for send in history.sends:
        if _is_promised(send) and send.offset != UNKNOWN_OFFSET:
            yield send.partition, send.offset, send.value
    for read in history.reads:
        yield read.partition, read.offset, read.value
    for final in history.finals:
        for offset, value in final.records:
            yield final.partition, offset, value


def _committed_offsets(history: History) -> dict[TopicPartition, set[int]]:
    """Return the offsets that readers of committed records have read."""
    found: dict[TopicPartition, set[int]] = defaultdict(set)
    for read in history.reads:
        if read.committed_only:
            found[read.partition].add(read.offset)
    for final in history.committed_finals:
        found[final.partition].update(offset for offset, _ in final.records)
    return found


def _offsets_of_values(
    history: History,
) -> dict[tuple[TopicPartition, bytes], set[int]]:
    """Return the places of each value, as consumers and the final logs show them."""
    found: dict[tuple[TopicPartition, bytes], set[int]] = defaultdict(set)
    for read in history.reads:
        found[read.partition, read.value].add(read.offset)
    for final in history.finals:
        for offset, value in final.records:
            found[final.partition, value].add(offset)
    return found
