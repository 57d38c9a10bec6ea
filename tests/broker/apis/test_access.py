"""Authorization over the wire: each check that an API declares denies and allows.

`CASES` has a row for each declared check, and a test fails if a row is missing. Without
the operation of the row, or with a denial of it, the answer is Kafka's. With all the
operations that the request needs, nothing is denied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from broker.apis.common.access import DENIED, Check
from broker.authorization.acls import (
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.principal import parse_principal
from broker.requests.classifier import Classifier
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)
from tests.broker.apis.test_every_version import CONTROLLER, FIELDS, NAMED, TOPIC

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {"authorizer.class.name": STANDARD, "super.users": "User:root"}
CLUSTER = "kafka-cluster"
ALICE = "User:alice"
AUTHORIZATION = frozenset(DENIED.values())
T, G, C, X = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Op = AclOperation
NAMES = {T: "t", G: "g", C: CLUSTER, X: "x"}
PARTITIONS = [{"name": "t", "partitions": [{"partition_index": 0}]}]


class Guarded(World):
    """A broker with an authorizer; `furnish` adds topics, a group and a transaction."""

    def __init__(self, storage: Any = None) -> None:
        super().__init__(SETTINGS, storage)
        self._intake._classify = Classifier(
            APIS, authorizer=self.broker.authorizer
        ).classify
        self.become("User:root")

    def become(self, principal: str) -> None:
        """Send the next requests as another principal."""
        self.peer.principal = parse_principal(principal)

    def furnish(self) -> None:
        """Create topics, open transaction ``x``, commit an offset of group ``g``."""
        self.topic_id = self.create("t")
        self.create("u")
        assert self.produce("t", b"x").error_code is ErrorCode.none
        for kind, key in enumerate("gx"):
            self.send(ApiKey.FIND_COORDINATOR, 3, key=key, key_type=kind)
        opened = self.send(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id="x",
            transaction_timeout=SECONDS_30,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert opened.error_code is ErrorCode.none
        added = self.send(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            **{**ADDED, "v3_and_below_producer_id": opened.producer_id},
        )
        assert set(errors(added)) == {ErrorCode.none}
        committed = self.send(ApiKey.OFFSET_COMMIT, 8, **COMMIT)
        assert set(errors(committed)) == {ErrorCode.none}

    def allow(
        self,
        *checks: Check,
        principal: str = ALICE,
        permission: PermissionType = PermissionType.ALLOW,
        name: str | None = None,
    ) -> None:
        """Create ACLs over the wire, as a super user."""
        before = self.peer.principal
        self.become("User:root")
        answer = self.send(
            ApiKey.CREATE_ACLS,
            3,
            creations=[
                {
                    "resource_type": kind,
                    "resource_name": name or NAMES[kind],
                    "resource_pattern_type": PatternType.LITERAL,
                    "principal": principal,
                    "host": "*",
                    "operation": operation,
                    "permission_type": permission,
                }
                for operation, kind in checks
            ],
        )
        assert set(errors(answer)) <= {ErrorCode.none}
        self.peer.principal = before


def errors(answer: Any) -> Iterator[ErrorCode]:
    """Iterate over all error codes of an answer, at any depth."""
    if isinstance(answer, ErrorCode):
        yield answer
    elif isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        for each in answer:
            yield from errors(each)
    elif dataclasses.is_dataclass(answer):
        for each in dataclasses.fields(answer):
            value = getattr(answer, each.name)
            if "error_code" in each.name and not isinstance(value, ErrorCode):
                value = ErrorCode(value)
            yield from errors(value)


COMMIT = {
    "group_id": "g",
    "member_id": "",
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "topics": [
        {
            "name": "t",
            "partitions": [{"partition_index": 0, "committed_offset": 1}],
        }
    ],
}


def refused(kind: ResourceType) -> Callable[[Any], bool]:
    return lambda answer: DENIED[kind] in set(errors(answer))


@dataclass
class Case:
    """A request, the operations that it needs, and the sign of its denial."""

    api: ApiKey
    check: Check
    fields: Any
    needs: tuple[Check, ...] = ()
    version: int | None = None
    is_refused: Callable[[Any], bool] | None = None

    @property
    def name(self) -> str:
        kind = self.check.resource_type.name
        return f"{self.api.name}-{self.check.operation.name}-{kind}"


def case(
    api: ApiKey,
    operation: AclOperation,
    kind: ResourceType,
    *needs: tuple[AclOperation, ResourceType],
    version: int | None = None,
    is_refused: Callable[[Any], bool] | None = None,
    **fields: Any,
) -> Case:
    return Case(
        api,
        Check(operation, kind),
        fields or FIELDS.get(api, {}),
        tuple(Check(*each) for each in needs),
        version,
        is_refused,
    )


def bits(*operations: AclOperation) -> int:
    return sum(1 << each for each in operations)


K = ApiKey
CONFIG = {"name": "retention.ms", "value": "5000"}
OF_TXN = {
    "transactional_id": "x",
    "producer_id": 1,
    "producer_epoch": 0,
    "group_id": "g",
}
ADDED = {
    "v3_and_below_transactional_id": "x",
    "v3_and_below_producer_id": 1,
    "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
}
BEAT = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout": SECONDS_30,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}
OF_BROKER = {**TOPIC, "resource_type": 4, "resource_name": "0"}
OF_LOGGER = {**TOPIC, "resource_type": 8, "resource_name": "0"}
OF_METRICS = {**TOPIC, "resource_type": 16, "resource_name": "m"}
OF_GROUP = {**TOPIC, "resource_type": 32, "resource_name": "g"}
CASES = [
    case(K.PRODUCE, Op.WRITE, T, version=12, **produce_fields({("t", 0): batch(b"a")})),
    case(
        K.PRODUCE,
        Op.WRITE,
        X,
        (Op.WRITE, T),
        version=12,
        transactional_id="x",
        **produce_fields(
            {("t", 0): batch(b"a", producer=(1, 0, 0), attributes=16)}, acks=-1
        ),
    ),
    case(K.FETCH, Op.READ, T, version=12, **fetch_fields({("t", 0): 0})),
    case(K.LIST_OFFSETS, Op.DESCRIBE, T, replica_id=-1, topics=NAMED),
    case(K.METADATA, Op.DESCRIBE, T, topics=[{"name": "t"}]),
    case(
        K.METADATA,
        Op.CREATE,
        T,
        (Op.DESCRIBE, T),
        topics=[{"name": "t"}],
        allow_auto_topic_creation=True,
    ),
    case(
        K.METADATA,
        Op.CREATE,
        C,
        (Op.DESCRIBE, T),
        topics=[{"name": "t"}],
        allow_auto_topic_creation=True,
    ),
    case(
        K.METADATA,
        Op.DESCRIBE,
        C,
        version=8,
        is_refused=lambda it: it.cluster_authorized_operations == 0,
        topics=[],
        include_cluster_authorized_operations=True,
    ),
    case(K.LEADER_AND_ISR, Op.CLUSTER_ACTION, C, **CONTROLLER),
    case(K.STOP_REPLICA, Op.CLUSTER_ACTION, C, **CONTROLLER),
    case(K.UPDATE_METADATA, Op.CLUSTER_ACTION, C, **CONTROLLER),
    case(K.CONTROLLED_SHUTDOWN, Op.CLUSTER_ACTION, C),
    case(K.ALTER_PARTITION, Op.CLUSTER_ACTION, C),
    case(K.OFFSET_COMMIT, Op.READ, G, (Op.READ, T), **COMMIT),
    case(K.OFFSET_COMMIT, Op.READ, T, (Op.READ, G), version=9, **COMMIT),
    case(
        K.OFFSET_FETCH,
        Op.DESCRIBE,
        G,
        (Op.DESCRIBE, T),
        groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}],
    ),
    case(
        K.OFFSET_FETCH,
        Op.DESCRIBE,
        T,
        (Op.DESCRIBE, G),
        version=9,
        groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}],
    ),
    case(K.FIND_COORDINATOR, Op.DESCRIBE, G, key_type=0, coordinator_keys=["g"]),
    case(K.FIND_COORDINATOR, Op.DESCRIBE, X, key_type=1, coordinator_keys=["x"]),
    case(
        K.JOIN_GROUP,
        Op.READ,
        G,
        group_id="g",
        protocol_type="consumer",
        session_timeout=SECONDS_30,
    ),
    case(K.HEARTBEAT, Op.READ, G, group_id="g"),
    case(K.CONSUMER_GROUP_HEARTBEAT, Op.READ, G, (Op.DESCRIBE, T), **BEAT),
    case(K.CONSUMER_GROUP_HEARTBEAT, Op.DESCRIBE, T, (Op.READ, G), **BEAT),
    case(
        K.CONSUMER_GROUP_DESCRIBE,
        Op.DESCRIBE,
        G,
        (Op.DESCRIBE, T),
        group_ids=["g"],
    ),
    case(
        K.CONSUMER_GROUP_DESCRIBE,
        Op.DESCRIBE,
        T,
        (Op.DESCRIBE, G),
        group_ids=["g"],
    ),
    case(K.LEAVE_GROUP, Op.READ, G, group_id="g"),
    case(K.SYNC_GROUP, Op.READ, G, group_id="g"),
    case(K.DESCRIBE_GROUPS, Op.DESCRIBE, G, groups=["g"]),
    case(K.LIST_GROUPS, Op.DESCRIBE, G, is_refused=lambda it: not it.groups),
    case(K.LIST_GROUPS, Op.DESCRIBE, C, is_refused=lambda it: not it.groups),
    case(
        K.CREATE_TOPICS,
        Op.CREATE,
        T,
        topics=[new_topic("t")],
    ),
    case(K.CREATE_TOPICS, Op.CREATE, C, topics=[new_topic("t")]),
    case(
        K.CREATE_TOPICS,
        Op.DESCRIBE_CONFIGS,
        T,
        (Op.CREATE, T),
        topics=[new_topic("t")],
    ),
    case(K.DELETE_TOPICS, Op.DELETE, T, topics=[{"name": "t"}]),
    case(K.DELETE_RECORDS, Op.DELETE, T, topics=NAMED),
    case(K.INIT_PRODUCER_ID, Op.IDEMPOTENT_WRITE, C, producer_id=-1, producer_epoch=-1),
    case(
        K.INIT_PRODUCER_ID,
        Op.WRITE,
        T,
        is_refused=refused(C),
        producer_id=-1,
        producer_epoch=-1,
    ),
    case(
        K.INIT_PRODUCER_ID,
        Op.WRITE,
        X,
        transactional_id="x",
        producer_id=-1,
        producer_epoch=-1,
    ),
    case(
        K.OFFSET_FOR_LEADER_EPOCH,
        Op.DESCRIBE,
        T,
        replica_id=-1,
        topics=[{"topic": "t", "partitions": [{"partition": 0}]}],
    ),
    case(
        K.OFFSET_FOR_LEADER_EPOCH,
        Op.CLUSTER_ACTION,
        C,
        is_refused=refused(T),
        replica_id=-1,
        topics=[{"topic": "t", "partitions": [{"partition": 0}]}],
    ),
    case(K.DESCRIBE_ACLS, Op.DESCRIBE, C),
    case(K.CREATE_ACLS, Op.ALTER, C),
    case(K.DELETE_ACLS, Op.ALTER, C),
    case(K.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS, T, resources=[TOPIC]),
    case(K.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS, C, resources=[OF_BROKER]),
    case(K.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS, C, resources=[OF_LOGGER]),
    case(K.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS, G, resources=[OF_GROUP]),
    case(K.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS, C, resources=[OF_METRICS]),
    case(K.ALTER_CONFIGS, Op.ALTER_CONFIGS, C, resources=[OF_METRICS]),
    case(K.INCREMENTAL_ALTER_CONFIGS, Op.ALTER_CONFIGS, C, resources=[OF_METRICS]),
    case(K.ALTER_CONFIGS, Op.ALTER_CONFIGS, T, resources=[TOPIC]),
    case(K.ALTER_CONFIGS, Op.ALTER_CONFIGS, G, resources=[OF_GROUP]),
    case(K.INCREMENTAL_ALTER_CONFIGS, Op.ALTER_CONFIGS, G, resources=[OF_GROUP]),
    case(K.ALTER_CONFIGS, Op.ALTER_CONFIGS, C, resources=[OF_BROKER]),
    case(
        K.INCREMENTAL_ALTER_CONFIGS,
        Op.ALTER_CONFIGS,
        T,
        resources=[{**TOPIC, "configs": [CONFIG]}],
    ),
    case(K.INCREMENTAL_ALTER_CONFIGS, Op.ALTER_CONFIGS, C, resources=[OF_BROKER]),
    case(K.INCREMENTAL_ALTER_CONFIGS, Op.ALTER_CONFIGS, C, resources=[OF_LOGGER]),
    case(K.ADD_OFFSETS_TO_TXN, Op.WRITE, X, (Op.READ, G), **OF_TXN),
    case(K.ADD_OFFSETS_TO_TXN, Op.READ, G, (Op.WRITE, X), **OF_TXN),
    case(K.END_TXN, Op.WRITE, X, **OF_TXN),
    case(K.ADD_PARTITIONS_TO_TXN, Op.WRITE, X, (Op.WRITE, T), version=3, **ADDED),
    case(K.ADD_PARTITIONS_TO_TXN, Op.WRITE, T, (Op.WRITE, X), version=3, **ADDED),
    case(K.DESCRIBE_TRANSACTIONS, Op.DESCRIBE, X, transactional_ids=["x"]),
    case(
        K.DESCRIBE_TRANSACTIONS,
        Op.DESCRIBE,
        T,
        (Op.DESCRIBE, X),
        is_refused=lambda it: not it.transaction_states[0].topics,
        transactional_ids=["x"],
    ),
    case(
        K.LIST_TRANSACTIONS,
        Op.DESCRIBE,
        X,
        is_refused=lambda it: not it.transaction_states,
        duration_filter=-1,
    ),
    case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, Op.DESCRIBE, C),
    case(
        K.ALTER_USER_SCRAM_CREDENTIALS,
        Op.ALTER,
        C,
        deletions=[{"name": "alice", "mechanism": 1}],
    ),
    case(K.DESCRIBE_CLIENT_QUOTAS, Op.DESCRIBE_CONFIGS, C),
    case(K.ALTER_CLIENT_QUOTAS, Op.ALTER_CONFIGS, C),
    case(K.WRITE_TXN_MARKERS, Op.CLUSTER_ACTION, C, is_refused=lambda it: it is None),
    case(
        K.TXN_OFFSET_COMMIT,
        Op.WRITE,
        X,
        (Op.READ, G),
        (Op.READ, T),
        **{**COMMIT, "transactional_id": "x"},
    ),
    case(
        K.TXN_OFFSET_COMMIT,
        Op.READ,
        G,
        (Op.WRITE, X),
        (Op.READ, T),
        **{**COMMIT, "transactional_id": "x"},
    ),
    case(
        K.TXN_OFFSET_COMMIT,
        Op.READ,
        T,
        (Op.WRITE, X),
        (Op.READ, G),
        version=5,
        **{**COMMIT, "transactional_id": "x"},
    ),
    case(
        K.DESCRIBE_PRODUCERS,
        Op.READ,
        T,
        topics=[{"name": "t", "partition_indexes": [0]}],
    ),
    case(
        K.ALTER_REPLICA_LOG_DIRS,
        Op.ALTER,
        C,
        dirs=[{"path": "/data", "topics": [{"name": "t", "partitions": [0]}]}],
    ),
    case(K.DESCRIBE_LOG_DIRS, Op.DESCRIBE, C),
    case(K.CREATE_PARTITIONS, Op.ALTER, T, topics=[{"name": "t", "count": 3}]),
    case(K.DELETE_GROUPS, Op.DELETE, G, groups_names=["g"]),
    case(K.ELECT_LEADERS, Op.ALTER, C),
    case(K.UPDATE_FEATURES, Op.ALTER, C),
    case(K.ALTER_PARTITION_REASSIGNMENTS, Op.ALTER, C),
    case(K.LIST_PARTITION_REASSIGNMENTS, Op.DESCRIBE, C),
    case(K.LIST_CONFIG_RESOURCES, Op.DESCRIBE_CONFIGS, C),
    case(K.DESCRIBE_QUORUM, Op.DESCRIBE, C),
    case(K.OFFSET_DELETE, Op.DELETE, G, (Op.READ, T), group_id="g", topics=PARTITIONS),
    case(K.OFFSET_DELETE, Op.READ, T, (Op.DELETE, G), group_id="g", topics=PARTITIONS),
    case(
        K.DESCRIBE_CLUSTER,
        Op.DESCRIBE,
        C,
        is_refused=lambda it: it.cluster_authorized_operations == 0,
        endpoint_type=1,
        include_cluster_authorized_operations=True,
    ),
    case(
        K.DESCRIBE_TOPIC_PARTITIONS,
        Op.DESCRIBE,
        T,
        topics=[{"name": "t"}],
        response_partition_limit=10,
    ),
]
# APIs that serve every client, even before authentication.
PUBLIC = {K.API_VERSIONS, K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE}
# The other cases begin with existing topics.
WITHOUT_TOPIC = {
    (K.METADATA, Op.CREATE),
    (K.CREATE_TOPICS, Op.CREATE),
    (K.CREATE_TOPICS, Op.DESCRIBE_CONFIGS),
}


def declared() -> set[tuple[ApiKey, Check]]:
    found = set()
    for key, api in APIS.items():
        rule = api.access
        checks = list(rule.in_handler)
        checks += [each.check for each in rule.whole]
        if rule.by_role or api.role is not None:
            assert rule.by_role, f"{ApiKey(key).name} claims a role"
            checks.append(Check(Op.CLUSTER_ACTION, C))
        if not checks:
            assert key in PUBLIC, f"{ApiKey(key).name} declares no check"
        found |= {(ApiKey(key), each) for each in checks}
    return found


def test_every_check_that_an_api_declares_has_a_case() -> None:
    missing = declared() - {(each.api, each.check) for each in CASES}
    # The tests of deletions below cover this check.
    assert missing == {(K.DELETE_TOPICS, Check(Op.DESCRIBE, T))}


def answered(tested: Case, world: Guarded) -> Any:
    version = tested.version
    if version is None:
        version = APIS[tested.api].versions[1]
    call = world.start(tested.api, version, **{"timeout": SECONDS_30, **tested.fields})
    if not call.done:
        # Only a permitted request waits.
        return ()
    if call.closed:
        # A denied WriteTxnMarkers is not decoded; its answer has errors in rows only.
        assert tested.api is K.WRITE_TXN_MARKERS
        return None
    return call.answer


def furnished(tested: Case) -> Guarded:
    world = Guarded()
    if (tested.api, tested.check.operation) not in WITHOUT_TOPIC:
        world.furnish()
    if tested.api is K.CONSUMER_GROUP_DESCRIBE:
        world.send(K.CONSUMER_GROUP_HEARTBEAT, 1, **BEAT)
    world.become(ALICE)
    return world


@pytest.mark.parametrize("tested", CASES, ids=lambda each: each.name)
def test_a_request_is_refused_without_its_operation_only(tested: Case) -> None:
    is_refused = tested.is_refused or refused(tested.check.resource_type)
    if (tested.api, tested.check.resource_type) in {
        (K.METADATA, C),
        (K.CREATE_TOPICS, C),
    } and tested.is_refused is None:
        is_refused = refused(T)
    world = furnished(tested)
    world.allow(*tested.needs)
    assert is_refused(answered(tested, world)), "absent"
    world = furnished(tested)
    world.allow(*tested.needs, tested.check)
    world.allow(tested.check, principal="User:*", permission=PermissionType.DENY)
    assert is_refused(answered(tested, world)), "prohibited"

    world = furnished(tested)
    world.allow(*tested.needs, tested.check)
    answer = answered(tested, world)
    if tested.is_refused is not None:
        assert not tested.is_refused(answer), "allowed"
    seen = set(errors(answer))
    if tested.api is K.CREATE_TOPICS and tested.check.operation is Op.CREATE:
        # The configs in the answer need another operation.
        assert answer.topics[0].error_code is ErrorCode.none
    else:
        assert not seen & AUTHORIZATION, "allowed"


@pytest.mark.parametrize("key", sorted(PUBLIC))
def test_public_apis_are_served_to_a_client_without_rights(key: ApiKey) -> None:
    world = Guarded()
    world.become("User:nobody")
    fields = {"client_software_name": "a", "client_software_version": "1"}
    answer = world.send(key, APIS[key].versions[1], **fields)
    assert not set(errors(answer)) & AUTHORIZATION


# ---- hidden topics ----


def test_topics_that_may_not_be_described_are_left_out_of_the_list() -> None:
    world = Guarded()
    world.furnish()
    world.allow(Check(Op.READ, T))
    world.become(ALICE)
    listed = world.send(ApiKey.METADATA, 12, topics=None)
    assert [topic.name for topic in listed.topics] == ["t"]
    paged = world.send(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, response_partition_limit=10)
    assert [topic.name for topic in paged.topics] == ["t"]
    assert paged.topics[0].topic_authorized_operations == bits(Op.READ, Op.DESCRIBE)


def test_a_denied_topic_looks_the_same_whether_it_is_there_or_not() -> None:
    world = Guarded()
    world.furnish()
    world.become(ALICE)
    for key, version, fields in (
        (ApiKey.METADATA, 12, {"allow_auto_topic_creation": True}),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"response_partition_limit": 10}),
    ):
        rows = []
        for name in ("t", "nope", "__consumer_offsets"):
            answer = world.send(key, version, topics=[{"name": name}], **fields)
            (row,) = answer.topics
            rows.append(dataclasses.replace(row, name=None))
        assert rows[0] == rows[1] == rows[2]
        assert rows[0].error_code is ErrorCode.topic_authorization_failed


def test_a_topic_deleted_by_its_id_keeps_its_name_to_itself() -> None:
    world = Guarded()
    world.furnish()
    world.become(ALICE)
    by_id = [{"name": None, "topic_id": world.topic_id}]
    denied = ErrorCode.topic_authorization_failed
    (row,) = world.send(ApiKey.DELETE_TOPICS, 6, topics=by_id).responses
    assert (row.error_code, row.name) == (denied, None)
    (row,) = world.send(ApiKey.METADATA, 12, topics=by_id).topics
    assert (row.error_code, row.name) == (denied, None)
    world.allow(Check(Op.DESCRIBE, T))
    (row,) = world.send(ApiKey.DELETE_TOPICS, 6, topics=by_id).responses
    assert (row.error_code, row.name) == (denied, "t")
    world.allow(Check(Op.DELETE, T))
    (row,) = world.send(ApiKey.DELETE_TOPICS, 6, topics=by_id).responses
    assert (row.error_code, row.name) == (ErrorCode.none, "t")


def test_a_topic_deleted_by_its_name_must_be_describable() -> None:
    """As in KRaft, a client needs Describe to learn that a topic is missing."""
    world = Guarded()
    world.furnish()
    world.become(ALICE)
    gone, denied = (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.topic_authorization_failed,
    )

    def deleted() -> list[ErrorCode]:
        topics = [{"name": name} for name in ("t", "nope")]
        rows = world.send(ApiKey.DELETE_TOPICS, 6, topics=topics).responses
        return [row.error_code for row in rows]

    assert deleted() == [denied, denied]
    world.allow(Check(Op.DESCRIBE, T), name="*")
    assert deleted() == [denied, gone]
    world.allow(Check(Op.DELETE, T), name="*")
    world.allow(Check(Op.DESCRIBE, T), name="*", permission=PermissionType.DENY)
    assert deleted() == [denied, denied]


def test_a_fetch_waits_for_what_may_be_read_and_for_nothing_else() -> None:
    world = Guarded()
    world.furnish()
    world.allow(Check(Op.READ, T))
    world.become(ALICE)
    wanted = fetch_fields({("t", 0): 1, ("u", 0): 0})
    call = world.start(
        ApiKey.FETCH, 12, **{**wanted, "min_bytes": 1, "max_wait": SECONDS_30}
    )
    assert not call.done
    world.connect("PLAINTEXT")
    world.become("User:root")
    world.produce("u", b"secret")
    assert not call.done, "records of another topic are not noticed"
    world.produce("t", b"y")
    rows = {it.topic: it.partitions[0] for it in call.answer.responses}
    assert rows["t"].records
    assert not rows["u"].records
    assert rows["u"].error_code is ErrorCode.topic_authorization_failed
    # A Fetch without a readable partition is answered at once.
    world.become(ALICE)
    only = fetch_fields({("u", 0): 0})
    call = world.start(
        ApiKey.FETCH, 12, **{**only, "min_bytes": 1, "max_wait": SECONDS_30}
    )
    assert call.done


def test_a_change_of_acls_counts_for_the_next_request() -> None:
    world = Guarded()
    world.furnish()
    world.become(ALICE)
    denied = ErrorCode.topic_authorization_failed
    assert world.produce("t", b"a").error_code is denied
    world.allow(Check(Op.WRITE, T))
    assert world.produce("t", b"a").error_code is ErrorCode.none
    world.become("User:root")
    filters = [
        {
            "resource_type_filter": 2,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
    ]
    world.send(ApiKey.DELETE_ACLS, 3, filters=filters)
    world.become(ALICE)
    assert world.produce("t", b"a").error_code is denied


def test_a_client_claims_no_control_class_and_no_replica_role() -> None:
    """Without an authorizer, this listener would grant every role."""
    world = Guarded()
    world.furnish()
    follower = {**fetch_fields({("t", 0): 0}), "replica_id": 1}
    for principal, allowed in (("User:broker", True), (ALICE, False)):
        if allowed:
            world.allow(Check(Op.CLUSTER_ACTION, C), principal=principal)
        world.become(principal)
        command = world.start(ApiKey.UPDATE_METADATA, 8, **CONTROLLER)
        replica = world.start(ApiKey.FETCH, 12, **follower)
        found = tuple(call.request.task.request_class for call in (command, replica))
        assert found == (("control", "replication") if allowed else ("admin", "admin"))
        assert command.request.is_denied is not allowed
        assert replica.request.is_denied is not allowed
    hidden = {**follower, "replica_state": {"replica_id": 1}}
    call = world.start(ApiKey.FETCH, 17, **hidden)
    assert call.answer.error_code is ErrorCode.cluster_authorization_failed


def test_offsets_by_topic_id_are_refused_by_the_topic_that_it_names() -> None:
    world = Guarded()
    world.furnish()
    world.become(ALICE)
    world.allow(Check(Op.READ, G))
    denied = ErrorCode.topic_authorization_failed
    unknown = ErrorCode.unknown_topic_id
    ids = (world.topic_id, UUID(int=77))
    partition = {"partition_index": 0, "committed_offset": 1}
    commit = {
        **COMMIT,
        "transactional_id": "x",
        "topics": [{"topic_id": each, "partitions": [partition]} for each in ids],
    }
    refused_whole = world.send(K.TXN_OFFSET_COMMIT, 6, **commit)
    assert set(errors(refused_whole)) == {DENIED[X]}
    assert [it.topic_id for it in refused_whole.topics] == list(ids)
    world.allow(Check(Op.WRITE, X))
    for key, version in ((K.OFFSET_COMMIT, 10), (K.TXN_OFFSET_COMMIT, 6)):
        answer = world.send(key, version, **commit)
        found = [(it.topic_id, it.partitions[0].error_code) for it in answer.topics]
        assert found == list(zip(ids, (denied, unknown), strict=True))
    wanted = [{"topic_id": each, "partition_indexes": [0]} for each in ids]
    groups = [{"group_id": "g", "topics": each} for each in (wanted, None)]
    named, everything = world.send(ApiKey.OFFSET_FETCH, 10, groups=groups).groups
    errors_by_id = {it.topic_id: it.partitions[0].error_code for it in named.topics}
    assert errors_by_id == dict(zip(ids, (denied, unknown), strict=True))
    assert (everything.error_code, everything.topics) == (ErrorCode.none, ())
