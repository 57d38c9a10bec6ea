"""Versions that Kafka 4 added after Kafka 3.9: Kafka 4.4's answers and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from tests.broker.apis.requests import SECONDS_30, batch, produce_fields
from tests.kafka.conftest import SETTINGS, Both, beside_kafka
from tests.kafka.java_tools import NEWEST, KafkaPrograms
from tests.kafka.peer import Peer
from tests.kafka.requests import (
    LAST_IN_3_9,
    newer_versions,
    settle,
    topic,
    topic_id,
)
from tests.kafka.test_same_broker_configs import levels_of_loggers
from tests.kafka.test_same_consumer_groups import beat
from tests.kafka.test_same_frames import framed, header
from tests.kafka.test_same_groups import join, partitions, ready, sync
from tests.kafka.test_same_records import fetch, produce
from tests.kafka.test_same_transactions import MINUTE, added, begun, completed

pytestmark = pytest.mark.kafka

_TRANSACTIONAL = 16
CHANGED_DEFAULT = "message.timestamp.after.max.ms"
FEATURE = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3
PATTERNS = (
    *(None, "", "listed-.*", "listed", "(?i)listed.*", ".*", "(?s).*", r"[^\pL]*"),
    *(r"\pL", r"\p{Greek}", r"listed-\d", "listed-[[:digit:]]", "other|é", "^other$"),
    *(r"\Aother\z", r"\Qlisted-1\E", "(?P<name>o)ther", "(?:o)ther", "o.{2,4}?r"),
    *("(", ")", "*", "a**", "a*+", "(?=a)", "(?<!a)", r"\1", "[z-a]", "[[:bad:]]"),
    *(
        r"\p{Bad}",
        "a{1001}",
        "a{2,1}",
        "\\",
        "(?<name>o)ther",
        r"\bother\b",
        "x*" * 1000,
        "(?U)o.*r",
        "o{,2}ther",
    ),
)


@pytest.fixture(scope="module")
def newer(
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    directory = tmp_path_factory.mktemp("newer")
    with beside_kafka(programs_of(NEWEST), directory, **SETTINGS) as both:
        yield both


def test_the_answers_are_the_same(newer: Both) -> None:
    for talk in (
        records,
        metadata,
        groups,
        offsets,
        reassignments,
        resources,
        transactions,
        listed_transactions,
        markers,
        log_dirs,
        batches,
        implicit_additions,
        offsets_in_transactions,
        defaults,
        features,
        fences,
        described_quorum,
        levels_of_loggers,
        intended_brokers,
        frames,
    ):
        newer.compare(talk)
    wanted = {
        f"{key.name} v{version}"
        for key in LAST_IN_3_9
        for version in newer_versions(key)
    }
    assert wanted <= newer.asked


def records(peer: Peer) -> None:
    name = topic(peer, "newer")
    for at in (1000, 3000):
        produce(peer, name, batch(b"a", b"b", timestamp_ms=at))
    named = topic_id(peer, name)
    for version in newer_versions(ApiKey.FETCH):
        for offset in (0, 3, 4, 5):
            fetch(peer, named, offset, version=version)
        fetch(peer, UUID(int=77), version=version)
    for version in newer_versions(ApiKey.LIST_OFFSETS):
        for timestamp in (-1, -2, -3, -4, -5, -6, 0, 1001, 3001):
            peer.send(
                ApiKey.LIST_OFFSETS,
                version,
                replica_id=-1,
                topics=[
                    {
                        "name": each,
                        "partitions": [{"partition_index": 0, "timestamp": timestamp}],
                    }
                    for each in (name, "nowhere")
                ],
            )


def metadata(peer: Peer) -> None:
    known = topic_id(peer, topic(peer, "described", 2))
    for version in newer_versions(ApiKey.METADATA):
        for wanted in (
            [{"name": "described"}, {"name": "unknown"}, {"name": "a/b"}],
            [{"topic_id": known, "name": None}],
            [{"topic_id": UUID(int=77), "name": None}],
            [],
        ):
            peer.send(
                ApiKey.METADATA,
                version,
                topics=wanted,
                include_topic_authorized_operations=True,
            )
    for version in newer_versions(ApiKey.DESCRIBE_CLUSTER):
        for kind in (1, 2, 3):
            for fenced in (False, True):
                peer.send(
                    ApiKey.DESCRIBE_CLUSTER,
                    version,
                    include_cluster_authorized_operations=True,
                    endpoint_type=kind,
                    include_fenced_brokers=fenced and kind == 1,
                )


def groups(peer: Peer) -> None:
    group = ready(peer, "newer")
    sync(peer, group, join(peer, group).member_id)
    for version in newer_versions(ApiKey.DELETE_GROUPS):
        names = [group, "unknown-group", "", "unknown-group"]
        peer.send(ApiKey.DELETE_GROUPS, version, groups_names=names)
        peer.send(ApiKey.DELETE_GROUPS, version, groups_names=[])
    for version in newer_versions(ApiKey.DESCRIBE_GROUPS):
        peer.send(ApiKey.DESCRIBE_GROUPS, version, groups=[group, "unknown-group", ""])
        peer.send(
            ApiKey.DESCRIBE_GROUPS,
            version,
            groups=[group, "unknown-group"],
            include_authorized_operations=True,
        )


def offsets(peer: Peer) -> None:
    group = ready(peer, "ids")
    known = topic_id(peer, topic(peer, "committed-by-id", 2))
    gone = topic_id(peer, topic(peer, "deleted-by-id"))
    unknown, none = UUID(int=77), UUID(int=0)
    committed = {"committed_offset": 7, "committed_metadata": "m"}

    def commit(*ids: UUID, **fields: Any) -> None:
        for version in newer_versions(ApiKey.OFFSET_COMMIT):
            peer.send(
                ApiKey.OFFSET_COMMIT,
                version,
                **{
                    "group_id": group,
                    "member_id": "",
                    "generation_id_or_member_epoch": -1,
                    "topics": [
                        {"topic_id": each, "partitions": partitions(0, 5, **committed)}
                        for each in ids
                    ],
                    **fields,
                },
            )

    def fetch_offsets() -> None:
        for version in newer_versions(ApiKey.OFFSET_FETCH):
            for wanted in ((known, gone, unknown), (unknown, none), (), None):
                for each in (group, "unknown-group", ""):
                    topics = wanted and [
                        {"topic_id": it, "partition_indexes": [0, 1, 5]}
                        for it in wanted
                    ]
                    peer.send(
                        ApiKey.OFFSET_FETCH,
                        version,
                        groups=[{"group_id": each, "topics": topics}],
                    )

    commit(known, gone)
    commit(known, unknown)
    commit(unknown, none)
    commit()
    commit(known, unknown, member_id="stranger")
    commit(known, unknown, generation_id_or_member_epoch=3)
    commit(known, unknown, group_id="no-group", generation_id_or_member_epoch=3)
    commit(known, unknown, group_id="")
    fetch_offsets()
    peer.ask(
        ApiKey.DELETE_TOPICS,
        6,
        topics=[{"name": "deleted-by-id", "topic_id": none}],
        timeout=SECONDS_30,
    )
    settle(peer)
    commit(gone)
    fetch_offsets()


def reassignments(peer: Peer) -> None:
    name = topic(peer, "moved")
    for version in newer_versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
        for replicas in ([1], [7], [1, 7], [], None):
            for may_change in (False, True):
                peer.send(
                    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                    version,
                    allow_replication_factor_change=may_change,
                    topics=[
                        {
                            "name": each,
                            "partitions": [
                                {"partition_index": 0, "replicas": replicas}
                            ],
                        }
                        for each in (name, "nowhere")
                    ],
                )


def resources(peer: Peer) -> None:
    topic(peer, "listed-resource")
    for version in newer_versions(ApiKey.LIST_CONFIG_RESOURCES):
        for kinds in ([2], [4], [8], [2, 4], [16], [32], [2, 16], [8, 4], [3], [2, 3]):
            answer = peer.ask(
                ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds
            )
            found = {
                (each.resource_type, each.resource_name)
                for each in answer.config_resources
                if not each.resource_name.startswith("__")
            }
            told = (answer.error_code, sorted(found))
            peer.note(f"LIST_CONFIG_RESOURCES v{version}", str(told))


def transactions(peer: Peer) -> None:
    name = topic(peer, "ended")
    for outcome in (True, False):
        owner: dict[str, Any] = {"transactional_id": f"ended-{outcome}"}
        producer_id, epoch = begun(peer, owner["transactional_id"])
        owner |= {"producer_id": producer_id, "producer_epoch": epoch}

        def end(is_commit: bool, owner: dict[str, Any] = owner, **other: Any) -> None:
            fields = {**owner, **other, "committed": is_commit}
            peer.send(ApiKey.END_TXN, 5, **fields)

        # Without an open transaction; both outcomes, then again in reverse order.
        end(True)
        end(False)
        completed(peer, owner["transactional_id"])
        end(False)
        end(True)
        owner["producer_epoch"] = epoch + 1
        peer.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **added(3, owner, name))
        end(outcome, producer_epoch=epoch)
        end(outcome, producer_epoch=epoch + 2)
        end(outcome, producer_id=producer_id + 1)
        end(outcome, transactional_id="never seen")
        end(outcome, transactional_id="")
        end(outcome)
        completed(peer, owner["transactional_id"])
        for is_commit in (outcome, not outcome):
            end(is_commit)
        for stale in (-1, 3, 32_766):
            end(outcome, producer_epoch=epoch + stale)
        # The next producer's requests, without an open transaction.
        for is_commit in (True, False):
            end(is_commit, producer_epoch=epoch + 2)


def markers(peer: Peer) -> None:
    name = topic(peer, "marked", 2)
    for transaction_version in (0, 1, 2, 3):
        transactional_id = f"marked-{transaction_version}"
        producer_id, _ = begun(peer, transactional_id)

        def write(
            epoch: int,
            *others: str,
            producer_id: int = producer_id,
            transaction_version: int = transaction_version,
            **fields: Any,
        ) -> None:
            names = (name, *others)
            row = {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "transaction_result": False,
                "topics": [{"name": it, "partition_indexes": [0, 9]} for it in names],
                "coordinator_epoch": 3,
                "transaction_version": transaction_version,
                **fields,
            }
            peer.send(ApiKey.WRITE_TXN_MARKERS, 2, markers=[row])
            end = {"partition_index": 0, "timestamp": -1}
            peer.send(
                ApiKey.LIST_OFFSETS,
                11,
                replica_id=-1,
                isolation_level=1,
                topics=[{"name": name, "partitions": [end]}],
            )

        owner = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": 0,
        }
        peer.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **added(3, owner, name))
        records = batch(b"a", producer=(producer_id, 0, 0), attributes=_TRANSACTIONAL)
        produced = produce_fields({(name, 0): records}, acks=-1)
        produced |= {"transactional_id": transactional_id}
        peer.send(ApiKey.PRODUCE, 9, **produced)
        write(0, "nowhere")
        for epoch in (1, 1, 0):
            write(epoch)
        write(1, coordinator_epoch=2)
        write(0, producer_id=producer_id + 1000)


def log_dirs(peer: Peer) -> None:
    name = topic(peer, "on-disk", 2)
    for version in newer_versions(ApiKey.DESCRIBE_LOG_DIRS):
        topics = [
            {"topic": name, "partitions": [0, 1, 7]},
            {"topic": "nowhere", "partitions": [0]},
        ]
        peer.send(ApiKey.DESCRIBE_LOG_DIRS, version, topics=topics)


def defaults(peer: Peer) -> None:
    topic(peer, "with-defaults")
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configuration_keys": [prefix + CHANGED_DEFAULT, *others],
        }
        for kind, name, prefix, others in (
            (2, "with-defaults", "", ()),
            (4, "1", "log.", ("num.recovery.threads.per.data.dir",)),
        )
    ]
    peer.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True)


def described_quorum(peer: Peer) -> None:
    for version in (0, 1, 2):
        for indexes in ([0], [1], [0, 1]):
            partitions = [{"partition_index": index} for index in indexes]
            wanted = {"topic_name": "__cluster_metadata", "partitions": partitions}
            peer.send(ApiKey.DESCRIBE_QUORUM, version, topics=[wanted])


def listed_transactions(peer: Peer) -> None:
    for name in ("listed-1", "listed-two", "LISTED", "a b\n", "é", "other"):
        begun(peer, name)
    for version in newer_versions(ApiKey.LIST_TRANSACTIONS):
        for pattern in PATTERNS:
            answer = peer.ask(
                ApiKey.LIST_TRANSACTIONS,
                version,
                state_filters=["Empty"],
                transactional_id_pattern=pattern,
            )
            names = sorted(it.transactional_id for it in answer.transaction_states)
            found = (pattern, answer.error_code.name, names)
            peer.note(f"LIST_TRANSACTIONS v{version}", str(found))


def batches(peer: Peer) -> None:
    named = topic_id(peer, topic(peer, "by-id", 2))
    unknown = UUID(int=77)
    for keys in (
        [(named, 0)],
        [(named, 1), (named, 0)],
        [(named, 9)],
        [(unknown, 0)],
        [(unknown, 1)],
        [(UUID(int=0), 0)],
    ):
        for acks in (1, -1):
            fields = produce_fields(dict.fromkeys(keys, batch(b"a")), acks=acks)
            peer.send(ApiKey.PRODUCE, 13, **fields)
    produce(peer, "by-id", batch(b"a"), version=12)
    produce(peer, "nowhere", batch(b"a"), version=12)


def implicit_additions(peer: Peer) -> None:
    name = topic(peer, "added-to")
    named = topic_id(peer, name)
    owner: dict[str, Any] = {"transactional_id": "adds-nothing"}
    producer_id, first = begun(peer, owner["transactional_id"])
    # The search for a coordinator creates the offsets topic.
    group = ready(peer, "in-transaction")
    owner["producer_id"] = producer_id

    def send(
        epoch: int, sequence: int, version: int, of: int = 0, **other: Any
    ) -> None:
        producer = (producer_id + of, epoch, sequence)
        records = batch(b"a", producer=producer, attributes=16)
        key = (named if version >= 13 else name, 0)
        fields = produce_fields({key: records}, acks=-1)
        fields["transactional_id"] = owner["transactional_id"]
        peer.send(ApiKey.PRODUCE, version, **{**fields, **other})

    def commit(epoch: int, version: int, **other: Any) -> None:
        row = {
            "partition_index": 0,
            "committed_offset": 7,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        peer.send(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            **{
                **owner,
                "producer_epoch": epoch,
                "group_id": group,
                "generation_id": -1,
                "topics": [{"name": name, "topic_id": named, "partitions": [row]}],
                **other,
            },
        )

    for round_, (version, offsets_version) in enumerate(((12, 5), (13, 6))):
        epoch = first + round_
        send(epoch, 1, version)
        send(epoch, 0, version, transactional_id=None)
        send(epoch, 0, version, transactional_id="never seen")
        send(epoch + 1, 0, version)
        send(epoch, 0, version, of=1)
        commit(epoch, offsets_version, transactional_id="never seen")
        commit(epoch + 1, offsets_version)
        if round_:
            # The offset commit begins the transaction.
            commit(epoch, offsets_version)
        send(epoch, 0, version)
        send(epoch, 0, version)
        send(epoch, 1, version)
        send(epoch, 3, version)
        commit(epoch, offsets_version)
        ids = [owner["transactional_id"]]
        answer = peer.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)
        (state,) = answer.transaction_states
        added_to = sorted((each.topic, each.partitions) for each in state.topics)
        peer.note("DESCRIBE_TRANSACTIONS v0", str((state.transaction_state, added_to)))
        end = {**owner, "producer_epoch": epoch, "committed": True}
        peer.send(ApiKey.END_TXN, 5, **end)
        completed(peer, owner["transactional_id"])
        # Batches and offsets after the end of the transaction.
        send(epoch, 2, version)
        commit(epoch, offsets_version)
        fetch(peer, name, isolation_level=1)


def offsets_in_transactions(peer: Peer) -> None:
    group = ready(peer, "ids-in-transactions")
    owner: dict[str, Any] = {"transactional_id": "commits-by-id"}
    producer_id, epoch = begun(peer, owner["transactional_id"])
    owner |= {"producer_id": producer_id, "producer_epoch": epoch}
    known = topic_id(peer, topic(peer, "in-transactions-by-id", 2))
    gone = topic_id(peer, topic(peer, "deleted-in-transactions"))
    names = {known: "in-transactions-by-id", gone: "deleted-in-transactions"}
    unknown, none = UUID(int=77), UUID(int=0)
    rows = partitions(0, 5, committed_offset=7, committed_metadata="m")

    def commit(*ids: UUID, **fields: Any) -> None:
        topics = [
            {
                "name": names.get(each, f"nowhere-{each.int}"),
                "topic_id": each,
                "partitions": rows,
            }
            for each in ids
        ]
        given = {"group_id": group, "generation_id": -1, **owner, "topics": topics}
        for version in newer_versions(ApiKey.TXN_OFFSET_COMMIT):
            peer.send(ApiKey.TXN_OFFSET_COMMIT, version, **{**given, **fields})

    commit(known, gone)
    commit(known, unknown)
    commit(unknown, none)
    commit()
    commit(known, unknown, group_id="")
    commit(known, unknown, member_id="stranger")
    commit(known, unknown, generation_id=3)
    commit(known, unknown, group_id="no-group", generation_id=3)
    commit(known, unknown, producer_epoch=epoch + 3)
    commit(known, unknown, transactional_id="never seen")
    long = partitions(0, committed_offset=7, committed_metadata="m" * 5000)
    rows = rows[1:] + long
    commit(known)
    rows = partitions(0, committed_offset=7, committed_metadata="m")
    peer.ask(
        ApiKey.DELETE_TOPICS,
        6,
        topics=[{"name": names[gone], "topic_id": none}],
        timeout=SECONDS_30,
    )
    settle(peer)
    commit(gone)
    # Groups of both protocols; a group with one member has epoch 2.
    for name in ("classic-in-transactions", "consumers-in-transactions"):
        group = ready(peer, name)
        if name.startswith("classic"):
            member = join(peer, group).member_id
            sync(peer, group, member)
        else:
            member = "member"
            beat(peer, group, member, subscribed_topic_names=[names[known]])
        for generation in (-1, 0, 1, 2, 3):
            for each in (member, "stranger", ""):
                commit(known, member_id=each, generation_id=generation)
    peer.send(ApiKey.END_TXN, 5, **owner, committed=True)
    completed(peer, owner["transactional_id"])


def intended_brokers(peer: Peer) -> None:
    ours = peer.ask(ApiKey.METADATA, 12, topics=[]).cluster_id
    for version in newer_versions(ApiKey.API_VERSIONS):
        for cluster in (None, ours, "another", ""):
            for node in (-1, -2, 1, 7):
                for software in ("a", "-a"):
                    answer = peer.ask(
                        ApiKey.API_VERSIONS,
                        version,
                        client_software_name=software,
                        client_software_version="1",
                        cluster_id=cluster,
                        node_id=node,
                    )
                    found = answer.error_code.name, bool(answer.api_keys)
                    peer.note(f"API_VERSIONS v{version}", str(found))


def frames(peer: Peer) -> None:
    """Send request bodies that are unusual or empty."""
    software = b"\2a\0021"
    # A transactional id, a group, a producer, and no member.
    in_transaction = b"\2x\2g" + bytes(10) + b"\xff" * 4 + b"\1\0"
    for key, version, what, body in (
        (ApiKey.API_VERSIONS, 5, "nothing", b""),
        (ApiKey.API_VERSIONS, 5, "version 4", software + b"\0"),
        (ApiKey.API_VERSIONS, 5, "no node", software + b"\0" + b"\0"),
        (ApiKey.API_VERSIONS, 5, "unknown tag", software + b"\0" * 5 + b"\1\x63\1x"),
        (ApiKey.DELETE_GROUPS, 3, "nothing", b""),
        (ApiKey.DELETE_GROUPS, 3, "null", b"\0\0"),
        (ApiKey.DELETE_GROUPS, 3, "null for a name", b"\2\0\0"),
        (ApiKey.DELETE_GROUPS, 3, "too long a name", b"\2\x70a\0"),
        (ApiKey.DELETE_GROUPS, 3, "unknown tag", b"\1\1\x63\1x"),
        (ApiKey.DELETE_GROUPS, 4, "a later version", b"\1\0"),
        (ApiKey.TXN_OFFSET_COMMIT, 6, "a name for an id", in_transaction + b"\2\2t\1"),
        (ApiKey.TXN_OFFSET_COMMIT, 7, "a later version", in_transaction + b"\1\0"),
    ):
        row = f"{key.name} v{version} with {what}"
        peer.send_bytes(framed(header(key, version) + b"\0" + body), row)
        answer = peer.receive(row)
        peer.note(row, answer if isinstance(answer, str) else str(answer[:8]))


def level(peer: Peer) -> int:
    """Return the finalized level of transaction.version, 0 if there is none."""
    settle(peer)
    answer = peer.ask(
        ApiKey.API_VERSIONS, 4, client_software_name="a", client_software_version="1"
    )
    assert answer.finalized_features_epoch >= 0
    (supported,) = [it for it in answer.supported_features if it.name == FEATURE]
    assert (supported.min_version, supported.max_version) == (0, 2)
    found = [it for it in answer.finalized_features if it.name == FEATURE]
    assert all(it.min_version_level == it.max_version_level for it in found)
    return found[0].max_version_level if found else 0


def features(peer: Peer) -> None:
    def update(version: int, *rows: tuple[str, int, int], validates: bool) -> None:
        peer.send(
            ApiKey.UPDATE_FEATURES,
            version,
            validate_only=validates,
            feature_updates=[
                {"feature": name, "max_version_level": level, "upgrade_type": kind}
                for name, level, kind in rows
            ],
        )
        peer.note(FEATURE, level(peer))

    for version in newer_versions(ApiKey.UPDATE_FEATURES):
        kinds = (UPGRADE, SAFE, UNSAFE, 0, 4) if version else (UPGRADE,)
        for kind in kinds:
            for wanted in (2, 3, 1, -1, 0, 2):
                for validates in (True, False) if version else (False,):
                    update(version, (FEATURE, wanted, kind), validates=validates)
        for wanted in (0, 1, -1):
            update(version, ("unheard-of", wanted, UPGRADE), validates=False)
        update(version, validates=False)
        down, unknown = (FEATURE, 1, SAFE), ("unheard-of", 1, UPGRADE)
        for rows in ((down, unknown), (unknown, down), ((FEATURE, 7, UPGRADE), down)):
            update(version, *rows, validates=False)
        update(version, (FEATURE, 2, UPGRADE), validates=False)


def fences(peer: Peer) -> None:
    """Fence an open transaction at each level; then send the fenced one's requests."""
    name = topic(peer, "fenced")
    for wanted, kind in ((0, SAFE), (1, UPGRADE), (2, UPGRADE)):
        row = {"feature": FEATURE, "max_version_level": wanted, "upgrade_type": kind}
        peer.send(ApiKey.UPDATE_FEATURES, 2, feature_updates=[row])
        peer.note(FEATURE, level(peer))
        for number, way in enumerate(("init", "abort", "commit", "add")):
            transactional_id = f"fenced-{wanted}-{way}"
            producer_id, epoch = begun(peer, transactional_id)
            owner: dict[str, Any] = {
                "transactional_id": transactional_id,
                "producer_id": producer_id,
                "producer_epoch": epoch,
            }
            nobody = {"producer_id": -1, "producer_epoch": -1}
            init = {**owner, "transaction_timeout": MINUTE}
            peer.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **added(3, owner, name))
            peer.send(ApiKey.INIT_PRODUCER_ID, 5, **{**init, **nobody})
            completed(peer, transactional_id)
            if number == 0:
                peer.send(ApiKey.INIT_PRODUCER_ID, 5, **init)
            elif number == 3:
                peer.send(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **added(3, owner, name))
            else:
                peer.send(ApiKey.END_TXN, 5, **owner, committed=way == "commit")
            answer = peer.ask(
                ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]
            )
            (state,) = answer.transaction_states
            peer.note(way, (state.transaction_state, state.producer_epoch - epoch))
            peer.send(ApiKey.INIT_PRODUCER_ID, 5, **{**init, **nobody})
