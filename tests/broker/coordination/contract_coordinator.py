"""What every coordinator promises to a broker, whatever it remembers with.

A subclass says how one is made and how it is after its process, or its connection,
was lost (`next_life`). The broker is a witness that obeys and writes down every word.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from broker.coordination.coordinator import Coordinator, FoundLog, NewTopic
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata import UpdateMetadataRequest
from broker.protocol.topic_partition import TopicPartition
from planes.lock import Acquire, Release, TaskLock
from planes.slices import PREEMPT

LEADER_DURING_DELETE = -2
UNKNOWN_ID = UUID(int=99)


class Witness:
    """A broker that does as it is told, and remembers what it was told."""

    def __init__(self) -> None:
        self.controller_epoch = 0
        self.state_change_lock = TaskLock("witness")
        self.held: dict[TopicPartition, UUID | None] = {}
        self.led: dict[TopicPartition, int] = {}
        self.told: dict[TopicPartition, int] = {}
        self.words: list[str] = []
        self.refuses: set[TopicPartition] = set()

    def holds(self, key: TopicPartition, topic_id: UUID | None) -> bool:
        return key in self.held and topic_id in (None, self.held[key])

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                refused = key in self.refuses
                if not refused:
                    self.held[key] = topic.topic_id
                    self.led[key] = state.leader_epoch
                    self.words.append(f"lead {key[0]}-{key[1]}")
                errors.append(
                    LeaderAndIsrPartitionError(
                        topic_name=key[0],
                        topic_id=topic.topic_id,
                        partition_index=key[1],
                        error_code=ErrorCode.kafka_storage_error
                        if refused
                        else ErrorCode.none,
                    )
                )
        return LeaderAndIsrResponse(
            error_code=ErrorCode.none, partition_errors=tuple(errors)
        )

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                assert state.delete_partition
                del self.held[key]
                self.led.pop(key, None)
                self.words.append(f"delete {key[0]}-{key[1]}")
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=key[0],
                        partition_index=key[1],
                        error_code=ErrorCode.none,
                    )
                )
        return StopReplicaResponse(
            error_code=ErrorCode.none, partition_errors=tuple(errors)
        )

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                if state.leader == LEADER_DURING_DELETE:
                    self.told.pop(key, None)
                    self.words.append(f"forget {key[0]}-{key[1]}")
                else:
                    self.told[key] = state.leader
                    self.words.append(f"tell {key[0]}-{key[1]}")
        return ErrorCode.none

    async def topic_changed(self, name: str) -> None:
        self.words.append(f"configure {name}")

    async def broker_configs_changed(self) -> None:
        self.words.append("configure the broker")

    def led_with_others(self) -> list[TopicPartition]:
        return []

    async def settle_deletions(self) -> None:
        self.words.append("settle")

    def settle_deletions_now(self) -> None:
        self.words.append("settle now")

    def found(self) -> dict[TopicPartition, FoundLog]:
        """Return what the disk of this broker holds."""
        return {
            key: FoundLog(
                topic_id=topic_id,
                is_empty=False,
                latest_epoch=self.led.get(key, 0),
                latest_producer_id=-1,
            )
            for key, topic_id in self.held.items()
        }


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a verb to its end; nobody else wants the CPU or the lock."""
    try:
        while True:
            trap = coroutine.send(None)
            assert trap is PREEMPT or type(trap).__name__ in ("Acquire", "Release")
    except StopIteration as stop:
        return stop.value


def interleaved(*verbs: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run verbs in turns, a trap each; a lock is held by one. Returns results."""
    outcomes: dict[int, Any] = {}
    holder: int | None = None
    wants: set[int] = set()
    while len(outcomes) < len(verbs):
        for number, verb in enumerate(verbs):
            if number in outcomes or (number in wants and holder is not None):
                continue
            if number in wants:
                wants.discard(number)
                holder = number
            try:
                trap = verb.send(None)
            except (StopIteration, KafkaError) as end:
                outcomes[number] = end.value if isinstance(end, StopIteration) else end
                continue
            if isinstance(trap, Acquire):
                wants.add(number)
            elif isinstance(trap, Release):
                assert holder == number
                holder = None
            else:
                assert trap is PREEMPT
    return [outcomes[number] for number in range(len(verbs))]


def refused(error: ErrorCode, verb: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(KafkaError) as caught:
        run(verb)
    assert caught.value.code is error


def new(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    return NewTopic(name=name, assignment=((0,),) * partitions, configs=configs)


class CoordinatorContract:
    """Broker 0 is the only one; the same for any coordinator."""

    def make(self) -> Coordinator:
        """Return a coordinator of a new cluster."""
        raise NotImplementedError

    def next_life(self) -> Coordinator:
        """Return a coordinator of the same cluster, after the last one has gone."""
        raise NotImplementedError

    @pytest.fixture
    def broker(self) -> Witness:
        return Witness()

    @pytest.fixture
    def coordinator(self, broker: Witness) -> Coordinator:
        return self.opened(self.make(), broker)

    def opened(self, coordinator: Coordinator, broker: Witness) -> Coordinator:
        coordinator.load()
        assert coordinator.reconcile(broker.found()) == {}
        coordinator.open(broker)
        return coordinator

    def test_a_new_cluster_has_one_broker_and_no_topics(
        self, coordinator: Coordinator
    ) -> None:
        assert dict(coordinator.topics) == {}
        assert [each.id for each in coordinator.live_brokers()] == [0]
        assert coordinator.broker_epoch > 0

    def test_a_topic_is_led_in_all_its_partitions_before_clients_are_told(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        topic = run(coordinator.create_topic(new("t", 2)))
        assert coordinator.topics["t"] == topic
        assert broker.words == ["lead t-0", "lead t-1", "tell t-0", "tell t-1"]
        assert broker.held == {("t", 0): topic.topic_id, ("t", 1): topic.topic_id}
        refused(ErrorCode.topic_already_exists, coordinator.create_topic(new("t")))

    def test_a_topic_that_cannot_be_made_leaves_nothing(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        broker.refuses.add(("t", 1))
        refused(ErrorCode.kafka_storage_error, coordinator.create_topic(new("t", 3)))
        assert dict(coordinator.topics) == {}
        assert broker.held == broker.told == {}
        broker.refuses.clear()
        run(coordinator.create_topic(new("t", 3)))
        assert len(broker.led) == 3

    def test_deletion_forgets_first_removes_then_and_settles_last(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.create_topic(new("t", 2)))
        broker.words.clear()
        run(coordinator.delete_topic("t"))
        assert broker.words == [
            "forget t-0",
            "forget t-1",
            "delete t-0",
            "delete t-1",
            "settle",
        ]
        assert broker.held == broker.told == dict(coordinator.topics) == {}
        refused(ErrorCode.unknown_topic_or_partition, coordinator.delete_topic("t"))

    def test_a_topic_of_the_same_name_is_another_one(
        self, coordinator: Coordinator
    ) -> None:
        first = run(coordinator.create_topic(new("t")))
        run(coordinator.delete_topic("t"))
        assert run(coordinator.create_topic(new("t"))).topic_id != first.topic_id

    def test_partitions_are_added_or_none_is(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.create_topic(new("t")))
        assert not run(coordinator.create_partitions("t", 2, ((0,), (0,))))
        assert run(coordinator.create_partitions("t", 1, ((0,), (0,))))
        assert len(coordinator.topics["t"].leader_epochs) == 3
        broker.refuses.add(("t", 4))
        refused(
            ErrorCode.kafka_storage_error,
            coordinator.create_partitions("t", 3, ((0,), (0,))),
        )
        assert len(coordinator.topics["t"].leader_epochs) == 3
        assert sorted(broker.held) == sorted(broker.told)

    def test_an_extension_that_is_undone_takes_no_other_with_it(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.create_topic(new("t")))
        broker.refuses.add(("t", 3))
        failed, overtaken = interleaved(
            coordinator.create_partitions("t", 1, ((0,),) * 3),
            coordinator.create_partitions("t", 1, ((0,), (0,))),
        )
        assert failed.code is ErrorCode.kafka_storage_error
        assert overtaken is True
        assert len(coordinator.topics["t"].leader_epochs) == 3
        assert sorted(broker.held) == sorted(broker.told)
        assert len(broker.held) == 3

    def test_of_two_extensions_the_later_hears_of_the_earlier(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.create_topic(new("t")))
        done, overtaken = interleaved(
            coordinator.create_partitions("t", 1, ((0,),) * 3),
            coordinator.create_partitions("t", 1, ((0,), (0,))),
        )
        assert (done, overtaken) == (True, False)
        assert len(broker.held) == len(broker.told) == 4

    def test_configs_are_replaced_and_take_effect(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.create_topic(new("t", a="1")))
        broker.words.clear()
        run(coordinator.set_topic_configs("t", {"b": "2"}))
        run(coordinator.set_broker_configs("0", {"c": "3"}))
        run(coordinator.set_broker_configs("", {"d": "4"}))
        assert coordinator.topics["t"].configs == {"b": "2"}
        assert coordinator.broker_configs == {"0": {"c": "3"}, "": {"d": "4"}}
        assert broker.words == ["configure t", *["configure the broker"] * 2]

    def test_no_producer_id_is_given_twice(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        blocks = [run(coordinator.producer_id_block()) for _ in range(2)]
        later = self.opened(self.next_life(), broker)
        blocks += [run(later.producer_id_block()) for _ in range(2)]
        ids = [each for block in blocks for each in block]
        assert len(set(ids)) == len(ids) > 0

    def test_a_shutdown_is_granted_to_a_broker_of_this_life_only(
        self, coordinator: Coordinator
    ) -> None:
        run(coordinator.controlled_shutdown(0, coordinator.broker_epoch))
        refused(
            ErrorCode.stale_broker_epoch,
            coordinator.controlled_shutdown(0, coordinator.broker_epoch - 1),
        )
        refused(ErrorCode.broker_not_available, coordinator.controlled_shutdown(7, -1))

    def test_the_next_life_knows_all_and_begins_new_epochs(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        topic = run(coordinator.create_topic(new("t", 2, a="1")))
        run(coordinator.set_broker_configs("0", {"c": "3"}))
        broker.led["t", 1] = 41
        later = self.opened(self.next_life(), broker)
        assert later.broker_epoch > coordinator.broker_epoch
        assert later.topics["t"].topic_id == topic.topic_id
        assert later.topics["t"].configs == {"a": "1"}
        assert later.broker_configs == {"0": {"c": "3"}}
        assert broker.led["t", 0] > 0
        assert broker.led["t", 1] > 41

    def test_a_log_that_nobody_knows_becomes_a_topic_that_the_next_life_knows(
        self, broker: Witness
    ) -> None:
        broker.held = {("found", 0): UNKNOWN_ID, ("found", 2): UNKNOWN_ID}
        self.opened(self.make(), broker)
        later = self.opened(self.next_life(), broker)
        assert later.topics["found"].topic_id == UNKNOWN_ID
        assert sorted(broker.told) == [("found", 0), ("found", 1), ("found", 2)]

    def test_a_log_of_another_topic_is_named_and_stays_where_it_is(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.create_topic(new("t")))
        broker.held["t", 0] = UNKNOWN_ID
        later = self.next_life()
        later.load()
        assert set(later.reconcile(broker.found())) == {("t", 0)}
        assert "delete t-0" not in broker.words
