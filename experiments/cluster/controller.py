"""A scripted controller: upon an election it sends what Kafka's would, and as it would.

A channel per broker has one request in flight and an unbounded queue behind it, and
tries a request again until the broker answers, or is gone
(``ControllerChannelManager``). What it knows of the cluster is told to it: it watches
nobody, and takes no proposals for ISRs, so a replica that has left one does not come
back. It serves where the time between the decision and the brokers' obedience is what
is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import trio

from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import decode_response, encode_request
from experiments.cluster.book import Book
from experiments.cluster.commands import (
    Command,
    Leadership,
    batch,
    introduction,
    merged,
)
from experiments.cluster.stage import LOST, Node, Stage
from experiments.cluster.wire import Wire

_CLIENT_ID = "controller"
# RequestSendThread's pause before it tries again.
_BACKOFF_S = 0.1


class CommandRefused(Exception):
    """A broker did not do what it was told: the scene is not what it should be."""


class _Due(NamedTuple):
    """A command whose turn will come, and when it was decided."""

    command: Command
    decided_ns: int


class Channel:
    """The way from the controller to one broker."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        book: Book,
        alive: Callable[[], list[Node]],
        *,
        merges: bool,
    ) -> None:
        self._number = number
        self._alive = alive
        self._stage = stage
        self._book = book
        self._merges = merges
        self._waiting: deque[_Due] = deque()
        self._came = trio.Event()
        self._done = trio.Event()
        self._wire: Wire | None = None
        self.alive = True

    def put(self, commands: Iterable[Command]) -> None:
        """Let commands wait for their turn."""
        now_ns = self._stage.now_ns()
        self._waiting += [_Due(command, now_ns) for command in commands]
        self._done = trio.Event()
        self._came.set()

    async def run(self) -> None:
        """Send what waits, one after the other, until cancelled."""
        try:
            while True:
                while self._waiting:
                    await self._send(self._next())
                self._done.set()
                self._came = trio.Event()
                await self._came.wait()
        finally:
            if self._wire is not None:
                await self._wire.close()

    def _next(self) -> _Due:
        """Take the command whose turn it is, all that waits of its kind merged."""
        if self._merges:
            first_ns = self._waiting[0].decided_ns
            merging = merged(due.command for due in self._waiting)
            self._waiting = deque(_Due(it, first_ns) for it in merging)
        return self._waiting.popleft()

    def abandon(self) -> None:
        """Send no more to a broker that is gone."""
        self.alive = False
        self._waiting.clear()

    async def drained(self) -> None:
        """Wait until everything was answered, or the broker is gone."""
        await self._done.wait()

    async def _send(self, due: _Due) -> None:
        """Send a command until it is answered, or nobody is there to answer it."""
        command = due.command
        while self.alive:
            attempt = self._book.begin(command.api_key, self._number, due.decided_ns)
            for state in command.states[-1:]:
                attempt.partition, attempt.leader = state.partition, state.leader
            frame = encode_request(
                command.api_key,
                command.version,
                attempt.number,
                _CLIENT_ID,
                command.body(self._alive()),
            )
            try:
                if self._wire is None:
                    self._wire = await self._stage.wire(
                        self._stage.nodes[self._number].control
                    )
                attempt.sent_ns = self._stage.now_ns()
                answer = await self._wire.ask(frame)
            except LOST:
                attempt.error_code = int(ErrorCode.network_exception)
                if self._wire is not None:
                    await self._wire.close()
                self._wire = None
                await trio.sleep(_BACKOFF_S)
                continue
            attempt.client_done_ns = self._stage.now_ns()
            told = decode_response(command.api_key, command.version, answer)[1]
            attempt.error_code = int(told.error_code)
            if attempt.error_code:
                raise CommandRefused(f"{command} was answered {told.error_code!r}")
            return


class ScriptedController:
    """Makes leaders of replicas when told to."""

    def __init__(
        self, stage: Stage, book: Book, *, merges: bool, decision_ms: float
    ) -> None:
        self._stage = stage
        self._decision_s = decision_ms / 1000
        self._channels = [
            Channel(node.number, stage, book, self._alive, merges=merges)
            for node in stage.nodes
        ]
        self._leaderships: dict[tuple[str, int], Leadership] = {}

    async def run(self) -> None:
        """Keep the channels going until cancelled."""
        async with trio.open_nursery() as nursery:
            for channel in self._channels:
                nursery.start_soon(channel.run)

    async def create(self, states: Iterable[Leadership]) -> None:
        """Tell all brokers of each other, then of new partitions; wait until they know.

        One after the other, lest the first be merged into what comes after it.
        """
        for channel in self._channels:
            channel.put([introduction()])
        await self.drained()
        self._decide(list(states))
        await self.drained()

    async def elect(self, leader: int | None, *, one_by_one: bool) -> None:
        """Make a broker the leader of all partitions, or each one's first replica.

        In one batch, or in a batch for each partition. Who is not in sync is not made
        a leader.
        """
        changed = []
        for state in self._leaderships.values():
            chosen = state.replicas[0] if leader is None else leader
            if chosen in state.isr:
                changed.append(_led_anew(state, chosen, state.isr))
        for states in [[each] for each in changed] if one_by_one else [changed]:
            await trio.sleep(self._decision_s)
            self._decide(states)

    async def lose(self, number: int) -> None:
        """Hear that a broker is gone: others in sync lead what it led."""
        self._channels[number].abandon()
        changed = []
        for state in self._leaderships.values():
            isr = tuple(it for it in state.isr if it != number)
            # The last one in sync stays: nobody else may lead.
            if number in state.isr and isr:
                leader = isr[0] if state.leader == number else state.leader
                changed.append(_led_anew(state, leader, isr))
        await trio.sleep(self._decision_s)
        self._decide(changed)

    async def drained(self) -> None:
        """Wait until every broker has answered everything."""
        for channel in self._channels:
            await channel.drained()

    def leader_of(self, topic: str, partition: int) -> int:
        """Return who leads a partition by the controller's last word."""
        return self._leaderships[topic, partition].leader

    def _decide(self, states: list[Leadership]) -> None:
        self._leaderships.update({(it.topic, it.partition): it for it in states})
        for channel in self._channels:
            if channel.alive and states:
                channel.put(batch(states))

    def _alive(self) -> list[Node]:
        return [
            node
            for node, channel in zip(self._stage.nodes, self._channels, strict=True)
            if channel.alive
        ]


def _led_anew(state: Leadership, leader: int, isr: tuple[int, ...]) -> Leadership:
    """Return a partition in its next epoch."""
    epoch = state.leader_epoch + 1
    return replace(state, leader=leader, isr=isr, leader_epoch=epoch)
