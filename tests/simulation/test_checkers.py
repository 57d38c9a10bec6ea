"""Each checker finds its planted anomaly, and none in fault-free histories."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.topic_partition import TopicPartition
from simulation.checkers import check
from simulation.histories import History
from tests.simulation.naive import (
    clean_history,
    commit,
    committed,
    final,
    initialization,
    look,
    read,
    send,
    sent_in,
    transaction,
)

ELSEWHERE = TopicPartition("t", 1)

PLANTED = {
    "lost-write": History(
        sends=[send(1, 0), send(2, 1)],
        finals=[replace(final(), records=((1, b"2"),))],
    ),
    "unseen": History(sends=[send(1, 0), send(2, 1)], finals=[final(1)]),
    "duplicate": History(sends=[send(1, 0)], finals=[final(1, 1)]),
    "invented": History(sends=[send(1, 0)], finals=[final(1, 2)]),
    "strayed": History(
        sends=[send(1, partition=ELSEWHERE, outcome="unknown")], finals=[final(1)]
    ),
    "G1a": History(sends=[send(1, outcome="fail")], finals=[final(1)]),
    "nonmonotonic-send": History(sends=[send(1, 1), send(2, 0)]),
    "reordered": History(
        sends=[send(1, outcome="unknown"), send(2, outcome="unknown")],
        finals=[final(2, 1)],
    ),
    "inconsistent-offsets": History(
        sends=[send(1), send(2)], reads=[read(0, 1), read(0, 2, consumer="d")]
    ),
    "dirty-read": History(
        sends=[send(1, acks=1), send(2, 0)], reads=[read(1, 1)], finals=[final(2)]
    ),
    "nonmonotonic-poll": History(
        sends=[send(1), send(2)], reads=[read(1, 2), read(0, 1, poll=2)]
    ),
    "int-nonmonotonic-poll": History(
        sends=[send(1), send(2)], reads=[read(1, 2, poll=7), read(0, 1, poll=7)]
    ),
    "poll-skip": History(
        sends=[send(1), send(2), send(3)],
        reads=[read(0, 1), read(2, 3)],
        finals=[final(1, 2, 3)],
    ),
    "int-poll-skip": History(
        sends=[send(1), send(2), send(3)],
        reads=[read(0, 1, poll=7), read(2, 3, poll=7)],
        finals=[final(1, 2, 3)],
    ),
    "lost-commit": History(
        commits=[commit(3, 0, 1), commit(5, 2, 3)], committed=[committed(3, 4, 5)]
    ),
    "two-leaders": History(replicas=[look(1), look(1, broker=1)]),
    "epoch-back": History(replicas=[look(1, leader_epoch=2), look(1)]),
    "high-watermark-back": History(replicas=[look(2), look(2, high_watermark=1)]),
    "log-start-back": History(replicas=[look(2, log_start_offset=1), look(2)]),
    "leader-lost-records": History(
        replicas=[look(2, high_watermark=1), look(1, high_watermark=1)]
    ),
    "high-watermark-outside": History(replicas=[look(2, high_watermark=3)]),
    "high-watermark-under-min-isr": History(
        replicas=[look(1, min_isr=2), look(2, min_isr=2)]
    ),
    "aborted-read": History(
        sends=[sent_in(1, 1, 0)],
        reads=[read(0, 1, committed_only=True)],
        transactions=[transaction(1, outcome="aborted")],
    ),
    "precommitted-read": History(
        sends=[sent_in(1, 1, 0)],
        reads=[read(0, 1, committed_only=True, at_ns=499)],
        transactions=[transaction(1)],
    ),
    "torn-transaction": History(
        sends=[sent_in(1, 1, 0), sent_in(1, 2, 1)],
        committed_finals=[final(1)],
        transactions=[transaction(1, outcome="unknown")],
    ),
    "lost-transaction": History(
        sends=[sent_in(1, 1, 0)],
        committed_finals=[final()],
        transactions=[transaction(1)],
    ),
    "zombie-commit": History(
        initializations=[initialization("p", 0), initialization("q", 100)],
        transactions=[transaction(1)],
    ),
    "processed-twice": History(
        sends=[
            sent_in(1, 1, source=(ELSEWHERE, 9)),
            sent_in(2, 2, source=(ELSEWHERE, 9)),
        ],
        committed_finals=[final(1, 2)],
        transactions=[transaction(1, group="g"), transaction(2, group="g")],
    ),
    "skipped-input": History(
        sends=[send(1, 0, partition=ELSEWHERE), sent_in(1, 2, source=(ELSEWHERE, 9))],
        finals=[replace(final(1), partition=ELSEWHERE)],
        committed_finals=[final(2)],
        commits=[replace(commit(1, 0, 1), partition=ELSEWHERE)],
        committed=[replace(committed(1, 2, 3), partition=ELSEWHERE)],
        transactions=[transaction(1, group="g")],
    ),
    "offset-behind": History(
        sends=[send(1, 0, partition=ELSEWHERE), sent_in(1, 2, source=(ELSEWHERE, 0))],
        finals=[replace(final(1), partition=ELSEWHERE)],
        committed_finals=[final(2)],
        committed=[replace(committed(-1, 2, 3), partition=ELSEWHERE)],
        transactions=[transaction(1, group="g")],
    ),
    "stable-offset-back": History(
        replicas=[look(2, last_stable_offset=2), look(2, last_stable_offset=1)]
    ),
    "stable-offset-outside": History(replicas=[look(2, last_stable_offset=3)]),
    "stable-offset-passed": History(
        sends=[sent_in(1, 1, 0)],
        replicas=[look(1, last_stable_offset=1, at_ns=400)],
        transactions=[transaction(1)],
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_anomaly_is_found_and_named(kind: str) -> None:
    assert {anomaly.kind for anomaly in check(PLANTED[kind])} == {kind}


@given(st.integers(min_value=0, max_value=2**32))
def test_nothing_is_found_where_all_went_well(seed: int) -> None:
    assert check(clean_history(random.Random(seed))) == []


ALLOWED = {
    "the leader alone had acknowledged it": History(
        sends=[send(1, 0, acks=1)], finals=[final()]
    ),
    "it was not promised": History(
        sends=[send(1, outcome="unknown")], finals=[final()]
    ),
    "it was deleted": History(sends=[send(1, 0)], finals=[final(start=1)]),
    "a plain producer repeats itself": History(
        sends=[send(1, 0, idempotent=False)], finals=[final(1, 1)]
    ),
    "after a rebalance a group goes on at what it has committed": History(
        sends=[send(1), send(2)], reads=[read(0, 1), read(1, 2), read(0, 1, session=1)]
    ),
    "there is a gap at an offset that nobody ever saw": History(
        sends=[send(1), send(2)], reads=[read(0, 1), read(2, 2)]
    ),
    "an answer may be of either of two commits at once": History(
        commits=[commit(3, 0, 9), commit(5, 2, 4)],
        committed=[committed(3, 10, 11), committed(5, 12, 13)],
    ),
    "a commit without an answer may be carried out late": History(
        commits=[commit(3, 0, 1, "unknown"), commit(5, 2, 3)],
        committed=[committed(5, 4, 5), committed(3, 6, 7)],
    ),
    # Seed 83683: an isolated broker received a commit of an abandoned connection.
    "of a commit that was repeated the first attempt may arrive last": History(
        commits=[replace(commit(3, 0, 1), repeated=True), commit(5, 2, 3)],
        committed=[committed(5, 4, 5), committed(3, 6, 7)],
    ),
    "a broker that was started anew begins below": History(
        replicas=[look(2), look(1, incarnation=1)]
    ),
    "there were enough in between": History(
        replicas=[look(1, min_isr=2), look(2, min_isr=2, partition_epoch=3)]
    ),
    "a follower hears how far its leader is": History(
        replicas=[look(it, min_isr=2, is_leader=False) for it in (1, 2)]
    ),
    "a transaction of unknown outcome was aborted": History(
        sends=[sent_in(1, 1, 0), sent_in(1, 2, 1)],
        committed_finals=[final()],
        transactions=[transaction(1, outcome="unknown")],
    ),
    "a reader of all records is given those of aborted transactions": History(
        sends=[sent_in(1, 1, 0)],
        reads=[read(0, 1)],
        transactions=[transaction(1, outcome="aborted")],
    ),
    "readers of committed records pass over aborted ones": History(
        sends=[sent_in(1, 1, 0), sent_in(2, 2, 1), sent_in(1, 3, 2)],
        reads=[
            *(read(it, it + 1) for it in range(3)),
            *(read(it, it + 1, committed_only=True, consumer="d") for it in (0, 2)),
        ],
        transactions=[transaction(1, ends_ns=0), transaction(2, outcome="aborted")],
    ),
    "a time-out has ended a transaction that nobody committed": History(
        sends=[sent_in(1, 1, 0)],
        replicas=[look(1, last_stable_offset=1, at_ns=400)],
        transactions=[transaction(1, outcome="aborted")],
    ),
    "a commit that was called for in time is no zombie's": History(
        initializations=[initialization("p", 0), initialization("q", 495)],
        transactions=[transaction(1)],
    ),
    "a follower cuts what its leader does not have": History(
        replicas=[
            look(2, is_leader=False, high_watermark=1),
            look(1, is_leader=False),
        ]
    ),
}


@pytest.mark.parametrize("why", ALLOWED)
def test_histories_that_kafka_allows_are_no_anomalies(why: str) -> None:
    assert check(ALLOWED[why]) == []


def test_a_digest_tells_histories_apart() -> None:
    one = History(sends=[send(1, 0)])
    assert one.digest() == History(sends=[send(1, 0)]).digest()
    assert one.digest() != History(sends=[send(1, 1)]).digest()
