"""Transactions and SCRAM users, step by step: Apache Kafka's answers and ours."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import batch, produce_fields
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer
from tests.kafka.requests import settle, topic, versions

pytestmark = pytest.mark.kafka

MINUTE = timedelta(seconds=60)
SHA_256 = 1
PATIENCE_S = 15.0
_TRANSACTIONAL = 16
UNSETTLED = (
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
)


def begun(peer: Peer, transactional_id: str) -> tuple[int, int]:
    """Return the producer id and epoch of a transactional id."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        # FindCoordinator creates the topic of transactions.
        peer.ask(
            ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[transactional_id], key_type=1
        )
        answer = peer.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=transactional_id,
            transaction_timeout=MINUTE,
            producer_id=-1,
            producer_epoch=-1,
        )
        if answer.error_code not in UNSETTLED:
            assert answer.error_code is ErrorCode.none
            return answer.producer_id, answer.producer_epoch
        time.sleep(0.01)
    raise AssertionError(answer)


def added(version: int, owner: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields of AddPartitionsToTxn for partition 0 of each topic."""
    topics = [{"name": name, "partitions": [0]} for name in names]
    if version < 4:
        fields = {**owner, "topics": topics}
        return {f"v3_and_below_{name}": value for name, value in fields.items()}
    return {"transactions": [{**owner, "verify_only": False, "topics": topics}]}


def completed(peer: Peer, transactional_id: str) -> None:
    """Wait until the markers of a transaction are written."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        ids = [transactional_id]
        answer = peer.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)
        if answer.transaction_states[0].transaction_state.startswith("Complete"):
            return
        time.sleep(0.01)
    raise AssertionError(answer)


@same_answers
def test_a_transaction_in_each_version(peer: Peer) -> None:
    name = topic(peer, "in-transactions")
    for version in range(6):
        transactional_id = f"whole-{version}"
        producer_id, epoch = begun(peer, transactional_id)
        owner = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        stale = {**owner, "producer_epoch": epoch + 1}
        unknown = {**owner, "transactional_id": "never seen"}
        key = ApiKey.ADD_PARTITIONS_TO_TXN
        for who in (owner, stale, unknown):
            peer.send(key, version, **added(version, who, name))
        peer.send(key, version, **added(version, owner, name, "nowhere"))
        if version in versions(ApiKey.ADD_OFFSETS_TO_TXN):
            for who in (owner, stale, unknown):
                peer.send(ApiKey.ADD_OFFSETS_TO_TXN, version, group_id="g", **who)
        if version in versions(ApiKey.TXN_OFFSET_COMMIT):
            rows = [
                {
                    "partition_index": 0,
                    "committed_offset": 7,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            ]
            topics = [{"name": name, "partitions": rows}]
            member = {
                "generation_id": -1,
                "member_id": "",
                "group_instance_id": None,
            }
            commit = {"group_id": "g", "topics": topics, **member}
            peer.send(ApiKey.TXN_OFFSET_COMMIT, version, **owner, **commit)
        records = batch(
            b"a", producer=(producer_id, epoch, 0), attributes=_TRANSACTIONAL
        )
        fields = produce_fields({(name, 0): records}, acks=-1)
        peer.send(ApiKey.PRODUCE, 9, **{**fields, "transactional_id": transactional_id})
        peer.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["never seen", ""])
        if version in versions(ApiKey.END_TXN):
            for who in (stale, unknown, owner):
                committed = bool(version % 2)
                peer.send(ApiKey.END_TXN, version, committed=committed, **who)
            completed(peer, transactional_id)
            last = {**owner, "committed": not version % 2}
            peer.send(ApiKey.END_TXN, version, **last)


@same_answers
def test_transactions_are_listed_and_their_producers_described(peer: Peer) -> None:
    begun(peer, "listed")
    for version in versions(ApiKey.LIST_TRANSACTIONS):
        for states in (["Empty"], ["Ongoing", "NoSuchState"]):
            fields = {"state_filters": states, "producer_id_filters": [1 << 40]}
            peer.send(ApiKey.LIST_TRANSACTIONS, version, duration_filter=-1, **fields)
    name = topic(peer, "described")
    asked = [
        {"name": name, "partition_indexes": [0, 1]},
        {"name": "nowhere", "partition_indexes": [0]},
    ]
    peer.send(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked)


@same_answers
def test_scram_users_are_altered_and_described(peer: Peer) -> None:
    def upsertion(
        name: str, iterations: int, mechanism: int = SHA_256
    ) -> dict[str, Any]:
        return {
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": b"salt",
            "salted_password": bytes(32),
        }

    key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    for deletions, upsertions in (
        # One user per request, since the order of the rows is unspecified.
        ([], [upsertion("alice", 4096)]),
        ([], [upsertion("few", 1)]),
        ([], [upsertion("many", 99_999)]),
        ([], [upsertion("", 4096)]),
        ([], [upsertion("odd", 1, 9)]),
        ([{"name": "nobody", "mechanism": 1}], []),
        ([{"name": "odd", "mechanism": 9}], []),
        ([{"name": "alice", "mechanism": 1}], [upsertion("alice", 4096)]),
    ):
        peer.send(key, 0, deletions=deletions, upsertions=upsertions)
    settle(peer)
    for users in ([{"name": "alice"}], [{"name": "nobody"}], []):
        peer.send(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
