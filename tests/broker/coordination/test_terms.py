"""The begin and the end of a controller's term, amid reads and queued requests."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from broker.controller.decisions import Decisions
from broker.coordination.controller_events import ControllerState
from broker.coordination.zookeeper.election import Term, elect
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.member import Member
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ErrorCode, KafkaError
from broker.zookeeper.znodes import Znode
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from simulation.virtual_time.apis import START_MS
from tests.broker.coordination.member_place import MemberWitness
from tests.broker.coordination.test_late_writes import config
from tests.broker.zookeeper.zoo import Zoo, with_zoo


class Interrupted(RetryingZnodes):
    """Znodes that run a function once, just before the epoch is read."""

    def __init__(
        self, session: ZooKeeperSession, happens: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(session)
        self._happens = [happens]

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        if path == paths.CONTROLLER_EPOCH and self._happens:
            await self._happens.pop()()
        return await super().get(path, watch=watch)


def test_a_controller_deposed_during_a_read_does_not_act_in_the_next_term() -> None:
    async def scenario(zoo: Zoo) -> None:
        session = await zoo.opened("zoo:2181")
        ours = RetryingZnodes(session)
        theirs = RetryingZnodes(await zoo.opened("zoo:2181"))
        first = await elect(ours, 0, START_MS)
        assert first is not None
        assert first.epoch == 1
        # The session has already been elected, as after a lost answer.
        assert await elect(ours, 0, START_MS) == first

        async def depose() -> None:
            await theirs.delete(paths.CONTROLLER)
            term = await elect(theirs, 1, START_MS)
            assert term is not None
            assert term.epoch == 2

        assert await elect(Interrupted(session, depose), 0, START_MS) is None

    with_zoo(scenario)


@pytest.mark.parametrize("asks_late", [False, True])
def test_requests_at_the_end_of_a_term_are_answered_not_controller(
    asks_late: bool,
) -> None:
    """A request that found the term may be queued after the term's end."""

    async def scenario(zoo: Zoo) -> None:
        znodes = RetryingZnodes(await zoo.opened("zoo:2181"))
        member = Member(
            config(0),
            connect=zoo.connect,
            new_id=lambda: UUID(int=1),
            now_ns=lambda: 0,
            now_ms=lambda: START_MS,
            rng=random.Random(1),
            supervisor=Supervisor(),
        )
        member.billed = nullcontext()
        broker: Any = MemberWitness(config(0))
        member.broker = broker
        governing = member.open_term(znodes, Term(1, 1))
        refused: list[ErrorCode] = []

        async def ask() -> None:
            try:
                await governing.run_event(ControllerState.ISR_CHANGE, nothing)
            except KafkaError as refusal:
                refused.append(refusal.code)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                if not asks_late:
                    nursery.start_soon(ask)
                    await trio.testing.wait_all_tasks_blocked()
                with trio.CancelScope() as term:
                    term.cancel()
                    await governing.run()
                if asks_late:
                    nursery.start_soon(ask)
        assert refused == [ErrorCode.not_controller]

    with_zoo(scenario)


def nothing() -> Decisions[None]:
    raise AssertionError("nobody is there to decide")
