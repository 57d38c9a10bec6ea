"""The embedded coordinator keeps the contract, with one directory and with several.

The coordinator decides alone and at once, and therefore guarantees more: a failed
creation leaves nothing behind, and logs are compared with the registry.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio

from broker.coordination.coordinator_roles import ConfigKind, Coordinator
from broker.coordination.embedded import embedded_coordinator
from broker.coordination.embedded_registry import Registry
from broker.disk.identity import draw_uuid
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import MemoryStorage
from broker.protocol.errors import ErrorCode, KafkaError
from planes.lock import Acquire, Release
from planes.slices import PREEMPT, Park
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from tests.broker.coordination.contract_coordinator import (
    CoordinatorContract,
    Scenario,
    new,
)
from tests.broker.coordination.witness import Witness

UNKNOWN_ID = UUID(int=99)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a verb to its end without any other task."""
    try:
        while True:
            trap = coroutine.send(None)
            assert trap is PREEMPT or type(trap).__name__ in ("Acquire", "Release")
    except StopIteration as stop:
        return stop.value


def interleaved(*verbs: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run verbs in turns, one trap at a time, with one lock; return their results."""
    outcomes: dict[int, Any] = {}
    holder: int | None = None
    wants: set[int] = set()
    asleep: set[int] = set()
    while len(outcomes) < len(verbs):
        for number, verb in enumerate(verbs):
            waits = number in wants and holder is not None
            if number in outcomes or number in asleep or waits:
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
            elif isinstance(trap, Park):
                if trap.register(partial(asleep.discard, number)):
                    asleep.add(number)
            else:
                assert trap is PREEMPT
    return [outcomes[number] for number in range(len(verbs))]


def is_refused(error: ErrorCode, verb: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(KafkaError) as caught:
        run(verb)
    assert caught.value.code is error


class Directories:
    """Directories of a single broker's cluster registry, kept between its lives."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.broker = Witness()
        self._directories = directories
        self._storage = MemoryStorage()
        self._rng = random.Random(3)
        for directory in directories:
            self._storage.make_directory(directory)

    def make(self) -> Coordinator:
        return embedded_coordinator(
            Registry(self._storage, LogDirs(self._directories)),
            broker_id=0,
            new_id=lambda: draw_uuid(self._rng),
        )

    def next_life(self) -> Coordinator:
        """Start the next life; one of several directories has lost its file."""
        self._storage = self._storage.after_kill()
        if len(self._directories) > 1:
            lost = self._rng.choice(self._directories)
            with suppress(FileNotFoundError):
                self._storage.remove(f"{lost}/doorkeeper-cluster.json")
        return self.make()

    def opened(self, coordinator: Coordinator) -> Coordinator:
        assert coordinator.local is not None
        coordinator.local.load()
        assert coordinator.local.reconcile(self.broker.found()) == {}
        coordinator.membership.open(self.broker)
        return coordinator

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Coordinator]:
        await trio.lowlevel.checkpoint()
        yield self.opened(self.next_life())


class TestEmbeddedInOneDirectory(CoordinatorContract):
    directories: Sequence[str] = ("/one",)

    def run(self, scenario: Scenario) -> None:
        async def main(clock: VirtualClock) -> None:
            await scenario(Directories(self.directories))

        run_virtual(main, seed=1)

    @pytest.fixture
    def place(self) -> Directories:
        return Directories(self.directories)

    @pytest.fixture
    def broker(self, place: Directories) -> Witness:
        return place.broker

    @pytest.fixture
    def coordinator(self, place: Directories) -> Coordinator:
        return place.opened(place.make())

    def test_a_topic_that_cannot_be_made_leaves_nothing(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        broker.refuses.add(("t", 1))
        is_refused(
            ErrorCode.kafka_storage_error, coordinator.admin.create_topic(new("t", 3))
        )
        assert dict(coordinator.admin.topics) == {}
        assert broker.held == broker.told == {}
        broker.refuses.clear()
        run(coordinator.admin.create_topic(new("t", 3)))
        assert len(broker.led) == 3

    def test_deletion_forgets_first_removes_then_and_settles_last(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.admin.create_topic(new("t", 2)))
        broker.words.clear()
        run(coordinator.admin.delete_topic("t"))
        assert broker.words == [
            "forget t-0",
            "forget t-1",
            "delete t-0",
            "delete t-1",
            "settle",
        ]
        assert broker.held == broker.told == dict(coordinator.admin.topics) == {}
        is_refused(
            ErrorCode.unknown_topic_or_partition, coordinator.admin.delete_topic("t")
        )

    def test_partitions_are_added_or_none_is(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.admin.create_topic(new("t")))
        assert not run(coordinator.admin.create_partitions("t", 2, ((0,), (0,))))
        assert run(coordinator.admin.create_partitions("t", 1, ((0,), (0,))))
        assert len(coordinator.admin.topics["t"].leader_epochs) == 3
        broker.refuses.add(("t", 4))
        is_refused(
            ErrorCode.kafka_storage_error,
            coordinator.admin.create_partitions("t", 3, ((0,), (0,))),
        )
        assert len(coordinator.admin.topics["t"].leader_epochs) == 3
        assert sorted(broker.held) == sorted(broker.told)

    def test_an_extension_that_is_undone_takes_no_other_with_it(
        self, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.admin.create_topic(new("t")))
        broker.refuses.add(("t", 3))
        failed, overtaken = interleaved(
            coordinator.admin.create_partitions("t", 1, ((0,),) * 3),
            coordinator.admin.create_partitions("t", 1, ((0,), (0,))),
        )
        assert failed.code is ErrorCode.kafka_storage_error
        assert overtaken is True
        assert len(coordinator.admin.topics["t"].leader_epochs) == 3
        assert sorted(broker.held) == sorted(broker.told)
        assert len(broker.held) == 3

    def test_configs_of_other_resources_are_replaced_and_stay(
        self, place: Directories, coordinator: Coordinator
    ) -> None:
        admin = coordinator.admin
        assert run(
            admin.set_configs(ConfigKind.RESOURCE, "groups/a/b é", {"c": "1"}, {})
        )
        assert not run(
            admin.set_configs(ConfigKind.RESOURCE, "groups/a/b é", {"c": "2"}, {})
        )
        assert run(admin.set_configs(ConfigKind.RESOURCE, "groups/d", {"c": "3"}))
        assert run(admin.set_configs(ConfigKind.RESOURCE, "groups/d", {}, {"c": "3"}))
        assert admin.configs[ConfigKind.RESOURCE] == {"groups/a/b é": {"c": "1"}}
        later = place.opened(place.next_life())
        assert later.admin.configs[ConfigKind.RESOURCE] == {"groups/a/b é": {"c": "1"}}

    def test_the_next_life_begins_leader_epochs_above_those_of_the_disk(
        self, place: Directories, coordinator: Coordinator, broker: Witness
    ) -> None:
        topic = run(coordinator.admin.create_topic(new("t", 2, a="1")))
        run(coordinator.admin.set_configs(ConfigKind.BROKER, "0", {"c": "3"}))
        broker.led["t", 1] = 41
        later = place.opened(place.next_life())
        assert later.membership.broker_epoch > coordinator.membership.broker_epoch
        assert later.admin.topics["t"].topic_id == topic.topic_id
        assert later.admin.topics["t"].configs == {"a": "1"}
        assert later.admin.configs[ConfigKind.BROKER] == {"0": {"c": "3"}}
        assert broker.led["t", 0] > 0
        assert broker.led["t", 1] > 41

    def test_an_unknown_log_becomes_a_topic_after_a_restart(
        self, place: Directories, broker: Witness
    ) -> None:
        broker.held = {("found", 0): UNKNOWN_ID, ("found", 2): UNKNOWN_ID}
        place.opened(place.make())
        later = place.opened(place.next_life())
        assert later.admin.topics["found"].topic_id == UNKNOWN_ID
        assert sorted(broker.told) == [("found", 0), ("found", 1), ("found", 2)]

    def test_a_log_of_another_topic_is_named_and_stays_where_it_is(
        self, place: Directories, coordinator: Coordinator, broker: Witness
    ) -> None:
        run(coordinator.admin.create_topic(new("t")))
        broker.held["t", 0] = UNKNOWN_ID
        later = place.next_life()
        assert later.local is not None
        later.local.load()
        assert set(later.local.reconcile(broker.found())) == {("t", 0)}
        assert "delete t-0" not in broker.words


class TestEmbeddedInThreeDirectories(TestEmbeddedInOneDirectory):
    directories = ("/one", "/two", "/three")
