"""The controller's four requests: fencing by epochs, and effects.

The tables are those of Kafka 3.9's ``ReplicaManager`` (KIP-380, KIP-516, KIP-570).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.controlled_shutdown_schema import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    leader_and_isr,
    stop_replica,
    update_metadata,
)

T = ("t", 0)
STALE_CONTROLLER = ErrorCode.stale_controller_epoch
STALE_BROKER = ErrorCode.stale_broker_epoch


@pytest.fixture
def world() -> World:
    """Broker 0, in broker epoch 2, leads t-0 in epoch 5, under controller epoch 3."""
    world = World()
    world.create("t")
    world = world.restarted()
    assert world.broker.coordinator.membership.broker_epoch == 2
    lead(world, leader_epoch=5, controller_epoch=3)
    return world


def lead(world: World, **kwargs: Any) -> Any:
    command = leader_and_isr(T, **{"leader": 0, **kwargs})
    return world.command(ApiKey.LEADER_AND_ISR, command)


def state(world: World) -> tuple[int, int]:
    """Return the replica's (leader, leader epoch) of t-0."""
    partition = world.broker.replicas.partitions[T]
    return partition.leader, partition.leader_epoch


# ---- whole requests ----


@pytest.mark.parametrize(
    ("broker_epoch", "error"),
    [(-1, NONE), (1, STALE_BROKER), (2, NONE), (3, NONE)],
)
def test_a_request_to_an_earlier_life_of_the_broker_is_stale(
    world: World, broker_epoch: int, error: ErrorCode
) -> None:
    kwargs = {"controller_epoch": 3, "broker_epoch": broker_epoch}
    told = update_metadata(T, leader=0, **kwargs)
    assert world.command(ApiKey.UPDATE_METADATA, told).error_code is error
    stop = stop_replica(T, leader_epoch=5, delete=False, **kwargs)
    assert world.command(ApiKey.STOP_REPLICA, stop).error_code is error
    assert lead(world, leader_epoch=6, **kwargs).error_code is error
    assert state(world) == (0, 6 if error is NONE else 5)


@pytest.mark.parametrize(
    ("controller_epoch", "error"), [(2, STALE_CONTROLLER), (3, NONE), (4, NONE)]
)
def test_an_earlier_controller_is_stale(
    world: World, controller_epoch: int, error: ErrorCode
) -> None:
    told = update_metadata(T, leader=0, controller_epoch=controller_epoch)
    assert world.command(ApiKey.UPDATE_METADATA, told).error_code is error
    stop = stop_replica(
        T, leader_epoch=5, delete=False, controller_epoch=controller_epoch
    )
    assert world.command(ApiKey.STOP_REPLICA, stop).error_code is error
    answer = lead(world, leader_epoch=6, controller_epoch=controller_epoch)
    assert answer.error_code is error
    assert len(answer.partition_errors) == (error is NONE)
    assert world.broker.controller_epoch == max(controller_epoch, 3)


def test_a_session_that_ends_while_configs_are_read_leaves_all_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_topic_configs(names: Iterable[str]) -> None:
        raise KafkaError(ErrorCode.request_timed_out, "the session has expired")

    monkeypatch.setattr(
        world.broker.coordinator.membership, "read_topic_configs", read_topic_configs
    )
    answer = lead(world, leader_epoch=6, controller_epoch=3)
    assert answer.error_code is ErrorCode.request_timed_out
    assert state(world) == (0, 5)


def test_a_controller_epoch_that_was_heard_once_fences_from_then_on(
    world: World,
) -> None:
    told = update_metadata(T, leader=0, controller_epoch=9)
    world.command(ApiKey.UPDATE_METADATA, told)
    assert lead(world, leader_epoch=6, controller_epoch=8).error_code is (
        STALE_CONTROLLER
    )


# ---- LeaderAndIsr, partition by partition ----


@pytest.mark.parametrize(
    ("leader_epoch", "is_kraft", "error"),
    [
        (4, False, STALE_CONTROLLER),
        (5, False, STALE_CONTROLLER),
        (6, False, NONE),
        (4, True, STALE_CONTROLLER),
        (5, True, NONE),
    ],
)
def test_a_leader_epoch_must_be_new(
    world: World, leader_epoch: int, is_kraft: bool, error: ErrorCode
) -> None:
    answer = lead(
        world,
        leader=2,
        isr=(0, 2),
        leader_epoch=leader_epoch,
        controller_epoch=3,
        is_kraft=is_kraft,
    )
    assert answer.error_code is NONE
    assert answer.partition_errors[0].error_code is error
    assert state(world) == ((2, leader_epoch) if error is NONE else (0, 5))


def test_a_topic_id_must_be_the_same(world: World) -> None:
    known = world.broker.coordinator.admin.topics["t"].topic_id
    for epoch, topic_id, error in (
        (6, UUID(int=99), ErrorCode.inconsistent_topic_id),
        (6, known, NONE),
        (7, None, NONE),
    ):
        answer = lead(world, leader_epoch=epoch, topic_id=topic_id, controller_epoch=3)
        assert answer.partition_errors[0].error_code is error


def test_a_broker_that_is_no_replica_does_not_take_part(world: World) -> None:
    answer = lead(
        world, leader=2, leader_epoch=6, isr=(1, 2), replicas=(1, 2), controller_epoch=3
    )
    error = answer.partition_errors[0].error_code
    assert error is ErrorCode.unknown_topic_or_partition
    assert state(world) == (0, 5)


def test_an_older_partition_epoch_changes_nothing(world: World) -> None:
    lead(world, leader_epoch=6, partition_epoch=40, controller_epoch=3)
    answer = lead(
        world,
        leader=2,
        isr=(0, 2),
        leader_epoch=7,
        partition_epoch=39,
        controller_epoch=3,
    )
    assert answer.partition_errors[0].error_code is NONE
    assert state(world) == (0, 6)


@pytest.mark.parametrize(
    ("name", "index", "error"),
    [
        ("fresh", 0, NONE),
        ("fresh", -1, ErrorCode.unknown_topic_or_partition),
        ("../../etc", 0, ErrorCode.invalid_topic_exception),
        ("..", 0, ErrorCode.invalid_topic_exception),
    ],
)
def test_a_replica_is_created_where_there_is_none(
    world: World, name: str, index: int, error: ErrorCode
) -> None:
    command = leader_and_isr(
        (name, index), leader=0, leader_epoch=0, controller_epoch=3
    )
    answer = world.command(ApiKey.LEADER_AND_ISR, command)
    assert answer.partition_errors[0].error_code is error
    assert ((name, index) in world.broker.replicas.partitions) == (error is NONE)


@pytest.mark.parametrize("version", range(8))
def test_every_version_moves_the_leadership(version: int) -> None:
    world = World()
    world.create("t")
    command = leader_and_isr(T, leader=2, leader_epoch=1, isr=(0, 2))
    answer = world.command(ApiKey.LEADER_AND_ISR, command, version)
    assert answer.partition_errors[0].error_code is NONE
    assert state(world) == (2, 1)
    refused = world.produce("t", b"x")
    assert refused.error_code is ErrorCode.not_leader_or_follower
    back = leader_and_isr(T, leader=0, leader_epoch=2, isr=(0, 2))
    world.command(ApiKey.LEADER_AND_ISR, back, version)
    assert world.produce("t", b"x").error_code is NONE
    world.check()


# ---- StopReplica ----


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [
        (4, ErrorCode.fenced_leader_epoch),
        (5, NONE),
        (6, NONE),
        (-1, NONE),
        (-2, NONE),
    ],
)
@pytest.mark.parametrize("delete", [False, True])
def test_stopping_is_fenced_by_the_leader_epoch(
    world: World, leader_epoch: int, delete: bool, error: ErrorCode
) -> None:
    stop = stop_replica(T, leader_epoch=leader_epoch, delete=delete, controller_epoch=3)
    answer = world.command(ApiKey.STOP_REPLICA, stop)
    assert answer.partition_errors[0].error_code is error
    is_gone = T not in world.broker.replicas.partitions
    assert is_gone == (delete and error is NONE)
    assert (T not in world.broker.logs.logs) == is_gone


def test_stopping_a_replica_that_is_not_there_is_fine(world: World) -> None:
    stop = stop_replica(("nope", 3), leader_epoch=0, delete=True, controller_epoch=3)
    answer = world.command(ApiKey.STOP_REPLICA, stop)
    assert answer.partition_errors[0].error_code is NONE


@pytest.mark.parametrize("version", range(5))
def test_every_version_deletes(version: int) -> None:
    world = World()
    world.create("t")
    stop = stop_replica(T, leader_epoch=0, delete=True)
    answer = world.command(ApiKey.STOP_REPLICA, stop, version)
    assert [(e.topic_name, e.partition_index) for e in answer.partition_errors] == [T]
    assert world.broker.replicas.partitions == {}


# ---- UpdateMetadata ----


@pytest.mark.parametrize("version", range(9))
def test_every_version_tells_clients_of_the_new_leader(version: int) -> None:
    world = World()
    world.create("t")
    brokers = {0: ("127.0.0.1", 9092), 2: ("other", 9093)}
    told = update_metadata(T, leader=2, brokers=brokers)
    assert world.command(ApiKey.UPDATE_METADATA, told, version).error_code is NONE
    answer = world.send(ApiKey.METADATA, 7, topics=[{"name": "t"}])
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (0, "127.0.0.1", 9092),
        (2, "other", 9093),
    ]
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (2, 5)
    assert answer.controller_id == 9
    world.check()


def test_a_partition_that_is_being_deleted_is_told_no_more(world: World) -> None:
    told = update_metadata(T, leader=-2, controller_epoch=3)
    world.command(ApiKey.UPDATE_METADATA, told)
    answer = world.send(
        ApiKey.METADATA, 7, topics=[{"name": "t"}], allow_auto_topic_creation=False
    )
    assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition


def test_this_broker_stays_alive_in_its_own_eyes(world: World) -> None:
    told = update_metadata(T, leader=0, brokers={}, controller_epoch=3)
    world.command(ApiKey.UPDATE_METADATA, told)
    answer = world.send(ApiKey.METADATA, 7, topics=None)
    assert [broker.node_id for broker in answer.brokers] == [0]


# ---- ControlledShutdown ----


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "error"),
    [
        (0, -1, NONE),
        (0, 1, STALE_BROKER),
        (0, 2, NONE),
        (7, -1, ErrorCode.broker_not_available),
    ],
)
def test_a_broker_that_stops_is_told_what_it_still_leads(
    world: World, broker_id: int, broker_epoch: int, error: ErrorCode
) -> None:
    world.create("alone")
    lead(world, leader_epoch=6, isr=(0, 2), controller_epoch=3)
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    call = world.start_entity(ApiKey.CONTROLLED_SHUTDOWN, 2, request.to_wire(2))
    answer = ControlledShutdownResponse.from_wire(call.answer)
    assert answer.error_code is error
    led = [(p.topic_name, p.partition_index) for p in answer.remaining_partitions]
    assert led == ([T] if error is NONE else [])
