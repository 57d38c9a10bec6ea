"""A controller by script: it says what Kafka's says upon an election, as Kafka's does.

A channel per broker has one request in flight and an unbounded queue behind it, and
tries a request again until the broker answers (``ControllerChannelManager``). What it
knows of the cluster was handed in: it watches nobody, and takes no proposals for ISRs.
So it serves where nobody dies, and where the time between the decision and the brokers'
obedience is what is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import trio

from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import decode_response, encode_request
from experiments.cluster.book import Book
from experiments.cluster.commands import Command, Leadership, batch, merged
from experiments.cluster.stage import LOST, Node, Stage
from experiments.cluster.wire import Wire

_CLIENT_ID = "controller"
# RequestSendThread's pause before it tries again.
_BACKOFF_S = 0.1


class CommandRefused(Exception):
    """A broker did not do what it was told: the scene is not what it should be."""


class Channel:
    """The way from the controller to one broker."""

    def __init__(self, node: Node, stage: Stage, book: Book, *, merges: bool) -> None:
        self._node = node
        self._stage = stage
        self._book = book
        self._merges = merges
        self._waiting: deque[tuple[Command, int]] = deque()
        self._came = trio.Event()
        self._done = trio.Event()
        self._wire: Wire | None = None

    def put(self, commands: Iterable[Command]) -> None:
        """Let commands wait for their turn."""
        now_ns = self._stage.now_ns()
        self._waiting += [(command, now_ns) for command in commands]
        self._done = trio.Event()
        self._came.set()

    async def run(self) -> None:
        """Send what waits, one after the other, until cancelled."""
        while True:
            while self._waiting:
                if self._merges:
                    first_ns = self._waiting[0][1]
                    merging = merged(command for command, _ in self._waiting)
                    self._waiting = deque((it, first_ns) for it in merging)
                await self._send(*self._waiting.popleft())
            self._done.set()
            self._came = trio.Event()
            await self._came.wait()

    async def drained(self) -> None:
        """Wait until everything was answered."""
        await self._done.wait()

    async def _send(self, command: Command, decided_ns: int) -> None:
        """Send a command until it is answered."""
        while True:
            attempt = self._book.begin(command.api_key, self._node.number, decided_ns)
            attempt.partition = command.states[-1].partition
            attempt.leader = command.states[-1].leader
            frame = encode_request(
                command.api_key,
                command.version,
                attempt.number,
                _CLIENT_ID,
                command.body(self._stage.nodes),
            )
            try:
                if self._wire is None:
                    self._wire = await self._stage.wire(self._node.control)
                attempt.sent_ns = self._stage.now_ns()
                answer = await self._wire.ask(frame)
            except LOST:
                attempt.error_code = int(ErrorCode.network_exception)
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
        self._decision_s = decision_ms / 1000
        self._channels = [
            Channel(node, stage, book, merges=merges) for node in stage.nodes
        ]
        self._leaderships: dict[tuple[str, int], Leadership] = {}

    async def run(self) -> None:
        """Keep the channels going until cancelled."""
        async with trio.open_nursery() as nursery:
            for channel in self._channels:
                nursery.start_soon(channel.run)

    def create(self, states: Iterable[Leadership]) -> None:
        """Tell all brokers of new partitions, in one batch."""
        self._decide(list(states))

    async def elect(self, leader: int | None, *, one_by_one: bool) -> None:
        """Make a broker the leader of all partitions, or each one's first replica.

        In one batch, or in a batch for each partition.
        """
        changed = [
            replace(
                state,
                leader=state.replicas[0] if leader is None else leader,
                leader_epoch=state.leader_epoch + 1,
            )
            for state in self._leaderships.values()
        ]
        for states in [[each] for each in changed] if one_by_one else [changed]:
            await trio.sleep(self._decision_s)
            self._decide(states)

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
            channel.put(batch(states))
