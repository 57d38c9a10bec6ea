"""The contract of every coordinator with its broker, for any storage.

A subclass provides a cluster (`Place`) and runs scenarios in it. Guarantees of the
embedded coordinator beyond the contract are in its own tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

import pytest
import trio

from broker.coordination.coordinator_roles import ConfigKind, Coordinator, NewTopic
from broker.protocol.errors import ErrorCode, KafkaError
from planes.lock import Acquire, Release, TaskLock
from planes.slices import PREEMPT, Park
from tests.broker.coordination.witness import Witness

T = TypeVar("T")
Verb = Coroutine[Any, Any, T]
# Timeout of the coordinator's verbs, and the longest wait of these tests.
TIMEOUT_MS = 20_000
PATIENCE_S = 30.0
_LOOK_S = 0.01


class Place(Protocol):
    """A new cluster with broker 0 as its only broker."""

    @property
    def broker(self) -> Witness:
        """The broker, whose disk outlives each of its lives."""

    def life(self) -> AbstractAsyncContextManager[Coordinator]:
        """Run the broker's next life; enter once the coordinator is ready."""


Scenario = Callable[[Place], Awaitable[None]]

# ---- handlers that wait -------------------------------------------------------------

_locks: dict[TaskLock, trio.Lock] = {}


async def served(verb: Verb[T]) -> T:
    """Run a verb as a handler does, with preemption, locks and parking."""
    while True:
        try:
            trap = verb.send(None)
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        if isinstance(trap, Park):
            woken = trio.Event()
            if trap.register(woken.set):
                await woken.wait()
        elif isinstance(trap, Acquire):
            await _locks.setdefault(trap.lock, trio.Lock()).acquire()
        elif isinstance(trap, Release):
            _locks[trap.lock].release()
        else:
            assert trap is PREEMPT
            await trio.lowlevel.checkpoint()


async def side_by_side(*verbs: Verb[T]) -> list[T]:
    """Run verbs concurrently; return their results."""
    outcomes: dict[int, T] = {}

    async def serve(number: int, verb: Verb[T]) -> None:
        outcomes[number] = await served(verb)

    async with trio.open_nursery() as nursery:
        for number, verb in enumerate(verbs):
            nursery.start_soon(serve, number, verb)
    return [outcomes[number] for number in range(len(verbs))]


async def refused(error: ErrorCode, verb: Verb[Any]) -> None:
    with pytest.raises(KafkaError) as caught:
        await served(verb)
    assert caught.value.code is error


async def until(condition: Callable[[], bool]) -> None:
    """Wait until an asynchronous action of the controller has taken effect."""
    with trio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 nothing tells of it but the broker
            await trio.sleep(_LOOK_S)


def new(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    return NewTopic(name=name, assignment=((0,),) * partitions, configs=configs)


class CoordinatorContract:
    """Tests of the contract, inherited once per coordinator."""

    def run(self, scenario: Scenario) -> None:
        """Run a scenario in a new place."""
        raise NotImplementedError

    def test_a_new_cluster_has_one_broker_and_no_topics(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                assert dict(coordinator.admin.topics) == {}
                assert [each.id for each in coordinator.membership.live_brokers()] == [
                    0
                ]
                assert coordinator.membership.broker_epoch > 0
                coordinator.controller.check_is_controller()

        self.run(scenario)

    def test_a_topic_is_led_in_all_its_partitions_before_clients_learn_of_it(
        self,
    ) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                broker = place.broker
                topic = await served(
                    coordinator.admin.create_topic(new("t", 2), TIMEOUT_MS)
                )
                assert coordinator.admin.topics["t"].topic_id == topic.topic_id
                words = ["lead t-0", "lead t-1", "tell t-0", "tell t-1"]
                assert broker.said("lead", "tell") == words
                held = {("t", 0): topic.topic_id, ("t", 1): topic.topic_id}
                assert broker.held == held
                assert broker.told == {("t", 0): 0, ("t", 1): 0}
                again = coordinator.admin.create_topic(new("t"), TIMEOUT_MS)
                await refused(ErrorCode.topic_already_exists, again)
                assert broker.said("lead", "tell") == words

        self.run(scenario)

    def test_deletion_forgets_first_and_removes_then(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                broker = place.broker
                await served(coordinator.admin.create_topic(new("t", 2), TIMEOUT_MS))
                broker.words.clear()
                await served(coordinator.admin.delete_topic("t", TIMEOUT_MS))
                assert dict(coordinator.admin.topics) == broker.told == {}
                await refused(
                    ErrorCode.unknown_topic_or_partition,
                    coordinator.admin.delete_topic("t"),
                )
                await until(lambda: not broker.held)
                assert broker.said("forget", "delete") == [
                    "forget t-0",
                    "forget t-1",
                    "delete t-0",
                    "delete t-1",
                ]

        self.run(scenario)

    def test_a_topic_of_the_same_name_is_another_one(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                first = await served(
                    coordinator.admin.create_topic(new("t"), TIMEOUT_MS)
                )
                await served(coordinator.admin.delete_topic("t", TIMEOUT_MS))
                # Metadata forgets a topic before its logs are deleted.
                await until(lambda: not place.broker.held)
                second = await _created(coordinator, new("t"))
                assert second != first.topic_id
                assert place.broker.held == {("t", 0): second}

        self.run(scenario)

    def test_partitions_are_added_to_as_many_as_were_seen(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                broker = place.broker
                await served(coordinator.admin.create_topic(new("t"), TIMEOUT_MS))

                async def add(first: int, count: int) -> bool:
                    return await served(
                        coordinator.admin.create_partitions(
                            "t", first, ((0,),) * count, TIMEOUT_MS
                        )
                    )

                assert not await add(2, 2)
                assert len(broker.held) == 1
                assert await add(1, 2)
                assert len(coordinator.admin.topics["t"].leader_epochs) == 3
                assert sorted(broker.held) == sorted(broker.told)
                assert len(broker.held) == 3

        self.run(scenario)

    def test_of_two_extensions_the_later_learns_of_the_earlier(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                broker = place.broker
                await served(coordinator.admin.create_topic(new("t"), TIMEOUT_MS))
                more, fewer = await side_by_side(
                    coordinator.admin.create_partitions(
                        "t", 1, ((0,),) * 3, TIMEOUT_MS
                    ),
                    coordinator.admin.create_partitions(
                        "t", 1, ((0,),) * 2, TIMEOUT_MS
                    ),
                )
                assert {more, fewer} == {True, False}
                assert len(coordinator.admin.topics["t"].leader_epochs) == 3 + more
                assert sorted(broker.held) == sorted(broker.told)
                assert len(broker.held) == 3 + more

        self.run(scenario)

    def test_configs_are_replaced_and_take_effect(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                broker = place.broker
                await served(
                    coordinator.admin.create_topic(new("t", a="1"), TIMEOUT_MS)
                )
                assert coordinator.admin.configs_of("t") == {"a": "1"}
                broker.words.clear()
                await served(coordinator.admin.set_topic_configs("t", {"b": "2"}))
                await served(
                    coordinator.admin.set_configs(ConfigKind.BROKER, "0", {"c": "3"})
                )
                await served(
                    coordinator.admin.set_configs(ConfigKind.BROKER, "", {"d": "4"})
                )
                assert coordinator.admin.topics["t"].configs == {"b": "2"}
                assert coordinator.admin.configs[ConfigKind.BROKER] == {
                    "0": {"c": "3"},
                    "": {"d": "4"},
                }
                # A change may take effect twice: when written, and on its notification.
                assert list(dict.fromkeys(broker.words)) == [
                    "configure t",
                    "configure the broker",
                ]

        self.run(scenario)

    def test_configs_of_users_are_replaced_and_stay(self) -> None:
        """A user name may have characters that are invalid in paths and URLs."""
        user = "CN=a/b, ~é"

        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                admin = coordinator.admin
                assert admin.configs[ConfigKind.USER] == {}
                assert await served(
                    admin.set_configs(ConfigKind.USER, user, {"c": "1"}, {})
                )
                assert not await served(
                    admin.set_configs(ConfigKind.USER, user, {"c": "2"}, {})
                )
                assert admin.configs[ConfigKind.USER][user] == {"c": "1"}
                assert await served(admin.set_configs(ConfigKind.USER, "v", {"d": "3"}))
                assert await served(
                    admin.set_configs(ConfigKind.USER, "v", {}, {"d": "3"})
                )
                assert not admin.configs[ConfigKind.USER].get("v")
            async with place.life() as coordinator:
                found = coordinator.admin.configs[ConfigKind.USER]
                assert {k: v for k, v in found.items() if v} == {user: {"c": "1"}}

        self.run(scenario)

    def test_quotas_of_every_kind_of_entity_are_replaced_and_stay(self) -> None:
        """The broker receives each change, also of a single user's configs."""
        entities = (
            "users/<default>",
            "users/CN%3Da%2Fb/clients/c%20%C3%A9",
            "users/<default>/clients/<default>",
            "clients/c",
            "clients/<default>",
            "ips/10.0.0.1",
        )

        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                admin = coordinator.admin
                assert admin.configs[ConfigKind.CLIENT] == {}
                place.broker.words.clear()
                for entity in entities:
                    put = partial(admin.set_configs, ConfigKind.CLIENT, entity)
                    assert await served(put({"q": "1"}, {}))
                    assert not await served(put({"q": "2"}, {}))
                    assert admin.configs[ConfigKind.CLIENT][entity] == {"q": "1"}
                    assert await served(put({"q": "3"}, {"q": "1"}))
                    assert f"quotas of {entity}" in place.broker.words
                assert await served(
                    admin.set_configs(ConfigKind.USER, "u~", {"q": "4"})
                )
                assert "quotas of users/u%7E" in place.broker.words
                assert admin.configs[ConfigKind.USER] == {"u~": {"q": "4"}}
                await served(admin.set_configs(ConfigKind.CLIENT, "clients/c", {}))
                assert not admin.configs[ConfigKind.CLIENT].get("clients/c")
            async with place.life() as coordinator:
                found = coordinator.admin.configs[ConfigKind.CLIENT]
                kept = {key: value for key, value in found.items() if value}
                left = set(entities) - {"clients/c"}
                assert kept == {key: {"q": "3"} for key in left}
                # A user whose znode only is the parent of client quotas has no configs.
                users = coordinator.admin.configs[ConfigKind.USER]
                assert {k: v for k, v in users.items() if v} == {"u~": {"q": "4"}}

        self.run(scenario)

    def test_of_two_who_alter_the_same_configs_one_is_told_to_look_again(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                before = {"a": "1"}
                await served(
                    coordinator.admin.create_topic(new("t", a="1"), TIMEOUT_MS)
                )
                outcomes = await side_by_side(
                    coordinator.admin.set_topic_configs("t", {"b": "2"}, before),
                    coordinator.admin.set_topic_configs("t", {"b": "3"}, before),
                )
                assert set(outcomes) == {True, False}
                assert coordinator.admin.configs_of("t") in ({"b": "2"}, {"b": "3"})
                outcomes = await side_by_side(
                    coordinator.admin.set_configs(
                        ConfigKind.BROKER, "0", {"c": "4"}, {}
                    ),
                    coordinator.admin.set_configs(
                        ConfigKind.BROKER, "0", {"c": "5"}, {}
                    ),
                )
                assert set(outcomes) == {True, False}
                assert coordinator.admin.configs[ConfigKind.BROKER]["0"] in (
                    {"c": "4"},
                    {"c": "5"},
                )

        self.run(scenario)

    def test_no_producer_id_is_given_twice(self) -> None:
        async def scenario(place: Place) -> None:
            ids: list[int] = []
            for _ in range(2):
                async with place.life() as coordinator:
                    blocks = await side_by_side(
                        *(coordinator.admin.producer_id_block() for _ in range(3))
                    )
                    ids += [each for block in blocks for each in block]
            assert len(set(ids)) == len(ids) > 0

        self.run(scenario)

    def test_a_shutdown_is_granted_to_a_broker_of_this_life_only(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                epoch = coordinator.membership.broker_epoch
                shut_down = coordinator.controller.controlled_shutdown
                await refused(ErrorCode.stale_broker_epoch, shut_down(0, epoch - 1))
                await refused(ErrorCode.broker_not_available, shut_down(7, -1))
                assert list(await served(shut_down(0, epoch))) == []

        self.run(scenario)

    def test_the_next_life_knows_all_and_begins_a_new_epoch(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                topic = await served(
                    coordinator.admin.create_topic(new("t", 2, a="1"), TIMEOUT_MS)
                )
                await served(
                    coordinator.admin.set_configs(ConfigKind.BROKER, "0", {"c": "3"})
                )
                epoch, cluster = (
                    coordinator.membership.broker_epoch,
                    coordinator.membership.cluster_id,
                )
            place.broker.told.clear()
            async with place.life() as later:
                assert later.membership.broker_epoch > epoch
                assert later.membership.cluster_id == cluster
                await until(lambda: len(later.admin.topics) == 1)
                assert later.admin.topics["t"].topic_id == topic.topic_id
                assert later.admin.configs_of("t") == {"a": "1"}
                assert later.admin.configs[ConfigKind.BROKER] == {"0": {"c": "3"}}
                await until(lambda: place.broker.told == {("t", 0): 0, ("t", 1): 0})

        self.run(scenario)

    def test_a_deleted_topic_is_unknown_to_the_next_life(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.life() as coordinator:
                await served(coordinator.admin.create_topic(new("t"), TIMEOUT_MS))
                await served(coordinator.admin.create_topic(new("u"), TIMEOUT_MS))
                await served(coordinator.admin.delete_topic("t", TIMEOUT_MS))
            async with place.life() as later:
                await until(lambda: list(place.broker.held) == [("u", 0)])
                await until(lambda: [*later.admin.topics] == ["u"])

        self.run(scenario)


async def _created(coordinator: Coordinator, topic: NewTopic) -> UUID:
    """Create a topic as soon as its name is free; return its id."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                return (
                    await served(coordinator.admin.create_topic(topic, TIMEOUT_MS))
                ).topic_id
            except KafkaError as error:
                if error.code is not ErrorCode.topic_already_exists:
                    raise
            await trio.sleep(_LOOK_S)
