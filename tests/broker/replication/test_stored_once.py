"""What idempotent producers send stands once in every log, whatever befalls replicas.

Three replicas of one partition with the code of brokers: logs, roles, followers.
Leaders change, some hear of it late and go on leading, brokers are killed or lose their
disks, followers fall behind and are cut, records are deleted. Clients repeat whatever
was not acknowledged, in order and to the leader they know, as they may. The model is
what they were promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from broker.cluster.partition import ALL_REPLICAS, Partition
from broker.cluster.required import Required
from broker.log import flushing, trimming
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import BatchHeader
from broker.replication.replica_fetcher import Asked, Following
from tests.broker.log.witness import NOW_MS
from tests.broker.replication.replica import LOGS, Replica, T

EVERYBODY: Final = (0, 1, 2)
IN_FLIGHT: Final = 5
REFUSALS: Final = (ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas)
REPLICA: Final = st.sampled_from(EVERYBODY)
CLIENT: Final = st.sampled_from([0, 1])
COUNTS: Final = st.lists(st.integers(1, 3), min_size=1, max_size=IN_FLIGHT)
SHARE: Final = st.floats(0, 1)

# Producer id, epoch, first sequence number.
Name = tuple[int, int, int]


@dataclass
class Sent:
    """A batch without an answer, and where it was appended last."""

    name: Name
    content: bytes
    at: Replica | None = None
    required: Required | None = None
    base_offset: int = -1


@dataclass
class Client:
    """An idempotent producer; one that is ``adrift`` has to repeat what is open."""

    producer_id: int
    leader: int
    epoch: int = 0
    sequence: int = 0
    adrift: bool = False
    # The replica that it sends to, as what it was when all that is open was sent there.
    connection: tuple[Replica, int] | None = None
    open: list[Sent] = field(default_factory=list)


class Replicas(RuleBasedStateMachine):
    """``promised`` holds the offset of each batch that was acknowledged."""

    @initialize()
    def begin(self) -> None:
        self.replicas = [Replica(number) for number in EVERYBODY]
        self.isr: tuple[int, ...] = EVERYBODY
        self.epoch, self.partition_epoch = -1, 0
        self.promised: dict[Name, int] = {}
        self._elect(0)
        for replica in self.replicas:
            replica.hears(self.word)
        self.clients = [Client(70, 0), Client(71, 0)]

    # ---- the controller ---------------------------------------------------------

    @property
    def leader(self) -> Replica:
        leader: int = self.word.leader
        return self.replicas[leader]

    def _elect(self, number: int) -> None:
        self.epoch += 1
        self.partition_epoch += 1
        self.word = SimpleNamespace(
            controller_epoch=1,
            leader=number,
            leader_epoch=self.epoch,
            isr=self.isr,
            partition_epoch=self.partition_epoch,
            replicas=EVERYBODY,
            adding_replicas=(),
            removing_replicas=(),
        )
        self.replicas[number].hears(self.word)

    def _decide(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.partition_epoch += 1
        leader = self.leader.partition
        assert leader.accept_isr(self.epoch, isr, self.partition_epoch)

    @rule(number=REPLICA)
    def another_leads(self, number: int) -> None:
        """The old leader goes on as it is until it hears of it."""
        if number in self.isr:
            self._elect(number)

    @rule(which=CLIENT, counts=COUNTS, heir=REPLICA, repeats=st.booleans())
    def leads_on_alone(
        self, which: int, counts: list[int], heir: int, repeats: bool
    ) -> None:
        """A leader that was frozen takes more records when it is none any more."""
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

    @rule(number=REPLICA)
    def hears(self, number: int) -> None:
        self.replicas[number].hears(self.word)

    @rule(number=REPLICA)
    def falls_behind(self, number: int) -> None:
        if number != self.word.leader and len(self.isr) == len(EVERYBODY):
            self._decide(tuple(each for each in self.isr if each != number))

    @rule(number=REPLICA)
    def has_caught_up(self, number: int) -> None:
        leader = self.leader.partition
        if number not in self.isr and leader.propose_expansion(number):
            assert leader.proposed_isr is not None
            self._decide(leader.proposed_isr)

    # ---- followers --------------------------------------------------------------

    @rule(number=REPLICA, max_bytes=st.sampled_from([1, 300, 10_000]))
    def fetches(self, number: int, max_bytes: int) -> None:
        self._fetch(self.replicas[number], max_bytes)

    @rule(number=REPLICA)
    def fetches_all(self, number: int) -> None:
        replica = self.replicas[number]
        replica.hears(self.word)
        for _ in range(3):
            self._fetch(replica, 10_000)

    def _fetch(self, replica: Replica, max_bytes: int) -> None:
        asked = replica.fetcher.request()
        if asked is None:
            return
        (each, offset) = asked.offsets[T]
        leader = self.replicas[replica.partition.leader].partition
        try:
            answer = self._answer(replica, each, offset, leader, max_bytes)
        except KafkaError as refused:
            answer = SimpleNamespace(error_code=refused.code)
        answer.partition_index = 0
        self._take(replica, asked, answer)
        if each.out_of_range:
            log = leader.log
            replica.fetcher.realign(each, log.log_start_offset, log.log_end_offset)

    def _take(self, replica: Replica, asked: Asked, answer: Any) -> None:
        topic = SimpleNamespace(topic="t", partitions=[answer])
        whole: Any = SimpleNamespace(error_code=ErrorCode.none, responses=[topic])
        for _ in replica.fetcher.take(asked, whole):
            pass

    def _answer(
        self,
        replica: Replica,
        each: Following,
        offset: int,
        leader: Partition,
        max_bytes: int,
    ) -> Any:
        leader.check_epoch(each.leader_epoch)
        log = replica.log
        latest, parting, piece = log.epochs.latest, None, None
        if latest >= 0:
            ours = leader.epoch_end_offset(latest)
            if ours.end_offset < 0:
                raise KafkaError(ErrorCode.offset_out_of_range)
            if ours.epoch < latest or ours.end_offset < offset:
                parting = ours
        if parting is None:
            piece = leader.read(offset, max_bytes, is_follower=True, min_one=True)
            leader.note_follower_fetch(replica.number, offset, log.log_start_offset)
            leader.advance_high_watermark()
        return SimpleNamespace(
            error_code=ErrorCode.none,
            high_watermark=leader.high_watermark,
            log_start_offset=leader.log.log_start_offset,
            records=piece.read() if piece is not None else b"",
            diverging_epoch=parting,
        )

    # ---- clients ----------------------------------------------------------------

    @rule(which=CLIENT, counts=COUNTS)
    def sends_and_is_answered(self, which: int, counts: list[int]) -> None:
        """All goes well."""
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
        # One that stops leading says so to all that waits, and is not sent more then.
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
        """Send all that is open once more; who ``looks`` finds the present leader."""
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
        """Number anew, which nobody may do while batches have no answer."""
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

    # ---- brokers and operators --------------------------------------------------

    @rule(number=REPLICA, flushed=st.booleans(), known=st.booleans())
    def is_killed(self, number: int, flushed: bool, known: bool) -> None:
        """Kill -9; ``known`` is whether its high watermark was written."""
        replica = self.replicas[number]
        if flushed:
            flushing.flush(replica.log)
        self._restart(
            replica,
            recovery_point=replica.log.recovery_point,
            high_watermark=replica.partition.high_watermark if known else 0,
        )

    @rule(number=REPLICA)
    def is_restarted(self, number: int) -> None:
        replica = self.replicas[number]
        flushing.settle(replica.log)
        watermark = replica.partition.high_watermark
        self._restart(replica, clean=True, high_watermark=watermark)

    def _restart(self, replica: Replica, **options: int) -> None:
        number, log = replica.number, replica.log
        start = log.log_start_offset
        again = Replica(
            number, log.storage.disk.after_kill(), log_start_offset=start, **options
        )
        self.replicas[number] = again
        if number == self.word.leader:
            self._elect(next(each for each in self.isr if each != number))

    @rule(number=REPLICA)
    def loses_its_disk(self, number: int) -> None:
        if number not in self.isr:
            self.replicas[number] = Replica(number)

    @rule(number=REPLICA)
    def rolls(self, number: int) -> None:
        self.replicas[number].log.roll(NOW_MS)

    @precondition(lambda self: self.epoch > 3)
    @rule(share=SHARE)
    def deletes_records(self, share: float) -> None:
        """Delete nothing that a client may still repeat."""
        leader = self.leader
        wanted = {sent.name for client in self.clients for sent in client.open}
        bound = min(
            [
                leader.partition.high_watermark,
                *(it.base_offset for it in leader.headers() if name_of(it) in wanted),
            ]
        )
        start = leader.log.log_start_offset
        trimming.delete_records_before(leader.log, start + int(share * (bound - start)))

    # ---- what must hold ---------------------------------------------------------

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
    """Return what no other batch has."""
    return header.producer_id, header.producer_epoch, header.base_sequence


Replicas.TestCase.settings = settings(
    max_examples=50, stateful_step_count=40, report_multiple_bugs=False
)
TestStoredOnce = Replicas.TestCase
