"""Records of idempotent producers occur once in every log, after any faults.

Clients retry unacknowledged batches in order, to the leader they know, and records are
deleted. The model consists of the acknowledged offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    invariant,
    precondition,
    rule,
)

from broker.cluster.delayed.required import Required
from broker.cluster.partition import ALL_REPLICAS
from broker.log import trimming
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import BatchHeader
from tests.broker.log.witness import NOW_MS
from tests.broker.replication.replica import LOGS, Replica
from tests.broker.replication.three_replicas import (
    EVERYBODY,
    FULL,
    REPLICA,
    ThreeReplicas,
    unless_full,
)

IN_FLIGHT: Final = 5
REFUSALS: Final = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_enough_replicas,
    FULL,
)
CLIENT: Final = st.sampled_from([0, 1])
COUNTS: Final = st.lists(st.integers(1, 3), min_size=1, max_size=IN_FLIGHT)
SHARE: Final = st.floats(0, 1)

# Producer id, epoch, first sequence number.
Name = tuple[int, int, int]


@dataclass
class Sent:
    """A batch without a response, and the replica of its last append."""

    name: Name
    content: bytes
    at: Replica | None = None
    required: Required | None = None
    base_offset: int = -1


@dataclass
class Client:
    """An idempotent producer; if ``adrift`` it must first retry its open batches."""

    producer_id: int
    leader: int
    epoch: int = 0
    sequence: int = 0
    adrift: bool = False
    # The replica and leader epoch to which all open batches were sent.
    connection: tuple[Replica, int] | None = None
    open: list[Sent] = field(default_factory=list)


class Replicas(ThreeReplicas):
    """``promised`` holds the offset of each acknowledged batch."""

    def prepare(self) -> None:
        """Start clients without any acknowledged batch."""
        self.promised: dict[Name, int] = {}
        self.clients = [Client(70, 0), Client(71, 0)]

    # ---- clients ----------------------------------------------------------------

    @rule(which=CLIENT, counts=COUNTS, heir=REPLICA, repeats=st.booleans())
    def leads_on_alone(
        self, which: int, counts: list[int], heir: int, repeats: bool
    ) -> None:
        """A paused former leader appends more records after it has lost leadership."""
        client, former = self.clients[which], self.word.leader
        if heir == former or heir not in self.isr:
            return
        self.repeats(which, looks=True)
        self._elect(heir)
        for count in counts:
            self.sends(which, count)
        if repeats:
            self.repeats(which, looks=True)
            assert client.leader == heir

    @rule(which=CLIENT, counts=COUNTS)
    def sends_and_is_answered(self, which: int, counts: list[int]) -> None:
        """Send batches to a healthy cluster and receive the acknowledgements."""
        for number in EVERYBODY:
            self.fetches_all(number)
        self.repeats(which, looks=True)
        for count in counts:
            self.sends(which, count)
        for number in (*EVERYBODY, *EVERYBODY):
            self.fetches_all(number)
        self.is_answered(which)

    @rule(which=CLIENT, count=st.integers(1, 3))
    def sends(self, which: int, count: int) -> None:
        client = self.clients[which]
        # A former leader fails its waiting requests; the client then has to retry.
        client.adrift = client.adrift or client.connection != self._connection(client)
        if client.adrift or len(client.open) == IN_FLIGHT:
            return
        name = client.producer_id, client.epoch, client.sequence
        content = LOGS.batch(
            [b"v"] * count,
            producer_id=client.producer_id,
            epoch=client.epoch,
            sequence=client.sequence,
        )
        client.sequence += count
        client.open.append(Sent(name, content))
        self._append(client, client.open[-1])

    @rule(which=CLIENT, looks=st.booleans())
    def repeats(self, which: int, looks: bool) -> None:
        """Send all open batches again; with ``looks``, to the present leader."""
        client = self.clients[which]
        if looks:
            client.leader = self.word.leader
        client.adrift, client.connection = False, self._connection(client)
        for sent in client.open:
            if not client.adrift:
                self._append(client, sent)

    @rule(which=CLIENT)
    def is_answered(self, which: int) -> None:
        client = self.clients[which]
        while client.open and self._is_acknowledged(client.open[0]):
            sent = client.open.pop(0)
            self.promised[sent.name] = sent.base_offset

    @rule(which=CLIENT)
    def raises_its_epoch(self, which: int) -> None:
        """Begin a new epoch; only a producer without open batches may do so."""
        client = self.clients[which]
        if not client.open:
            client.epoch += 1
            client.sequence = 0

    def _connection(self, client: Client) -> tuple[Replica, int]:
        replica = self.replicas[client.leader]
        return replica, replica.partition.leader_epoch

    def _append(self, client: Client, sent: Sent) -> None:
        replica = self.replicas[client.leader]
        try:
            appended = replica.partition.append(sent.content, ALL_REPLICAS, NOW_MS)
        except KafkaError as refused:
            if refused.code not in REFUSALS:
                raise
            client.adrift = True
            return
        sent.at, sent.base_offset = replica, appended.base_offset
        sent.required = Required.by(replica.log, appended.last_offset)

    def _is_acknowledged(self, sent: Sent) -> bool:
        replica = sent.at
        if replica is None or replica not in self.replicas:
            return False
        assert sent.required is not None
        outcome = replica.partition.acknowledged(sent.required.offset)
        return outcome is ErrorCode.none and sent.required.still_stands(replica.log)

    # ---- an operator ------------------------------------------------------------

    @precondition(lambda self: self.epoch > 3)
    @rule(share=SHARE)
    def deletes_records(self, share: float) -> None:
        """Delete records below any batch that a client may still retry."""
        leader = self.leader
        wanted = {sent.name for client in self.clients for sent in client.open}
        bound = min(
            [
                leader.partition.high_watermark,
                *(it.base_offset for it in leader.headers() if name_of(it) in wanted),
            ]
        )
        start = leader.log.log_start_offset
        with unless_full(leader):
            trimming.delete_records_before(
                leader.log, start + int(share * (bound - start))
            )

    # ---- invariants -------------------------------------------------------------

    @invariant()
    def stands_once(self) -> None:
        for replica in getattr(self, "replicas", ()):
            names = [name_of(header) for header in replica.headers()]
            assert len(names) == len(set(names)), names

    @invariant()
    def producers_are_what_the_log_says(self) -> None:
        for replica in getattr(self, "replicas", ()):
            for client in self.clients:
                self._check_state(replica, client.producer_id)

    def _check_state(self, replica: Replica, producer_id: int) -> None:
        own = [it for it in replica.headers() if it.producer_id == producer_id]
        if not own:
            return
        state = replica.log.producers._states[producer_id]
        epoch = own[-1].producer_epoch
        last = [it for it in own if it.producer_epoch == epoch][-IN_FLIGHT:]
        expected = [
            (it.base_sequence, it.last_sequence, it.base_offset, it.last_offset)
            for it in last
        ]
        assert state.epoch == epoch
        assert [it[:4] for it in state.batches[-len(last) :]] == expected

    @invariant()
    def keeps_its_promises(self) -> None:
        if not hasattr(self, "replicas"):
            return
        leader = self.leader
        found = {name_of(header): header.base_offset for header in leader.headers()}
        for name, offset in self.promised.items():
            assert found.get(name, offset) == offset, name
            assert name in found or offset < leader.log.log_start_offset, name


def name_of(header: BatchHeader) -> Name:
    """Return the unique name of a batch."""
    return header.producer_id, header.producer_epoch, header.base_sequence


Replicas.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, report_multiple_bugs=False
)
TestStoredOnce = Replicas.TestCase
