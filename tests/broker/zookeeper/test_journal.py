"""ZooKeeper's snapshot and log: crashes at any disk call, logs cut at any byte."""

from __future__ import annotations

import random

import pytest

from broker.disk.memory import Crashed, Faults, MemoryStorage
from broker.disk.storage import read_whole
from broker.protocol.errors import MalformedFrame
from broker.zookeeper import zookeeper_messages as messages
from broker.zookeeper.in_memory.server_messages import QUOTA_EXCEEDED
from broker.zookeeper.in_memory.service import Limits, ZooKeeperService
from broker.zookeeper.in_memory.zookeeper_journal import Journal, JournalError
from broker.zookeeper.in_memory.zookeeper_transactions import (
    Refused,
    packed_transaction,
)
from broker.zookeeper.jute import Reader, packed_int
from broker.zookeeper.znodes import Create, NoNode
from broker.zookeeper.zookeeper_messages import Request
from tests.broker.zookeeper.drawn_ops import draw_ops

AT = "zookeeper"
# Small enough that some transactions trigger a snapshot.
LOG_BYTES = 700
STEPS = 60
TICK_MS = 1000


class Peer:
    """A connection that records the responses."""

    def __init__(self) -> None:
        self.frames: list[Reader] = []
        self.hung_up = False

    def send(self, frame: bytes) -> None:
        self.frames.append(Reader(frame[4:]))

    def hang_up(self) -> None:
        self.hung_up = True

    def code(self) -> int:
        """Return the error code of the last response."""
        answer = self.frames.pop()
        answer.read_int(), answer.read_long()
        return answer.read_int()


class StatesJournal(Journal):
    """A journal that records the state after each transaction."""

    service: ZooKeeperService
    states: dict[int, bytes]

    def append(self, record: bytes) -> None:
        super().append(record)
        self.states[self.service.tree.zxid] = self.service.packed()


def service_of(
    journal: Journal | None, rng: random.Random, *, limits: Limits | None = None
) -> ZooKeeperService:
    clock_ns = iter(range(0, 1 << 62, 90_000_000))
    return ZooKeeperService(
        now_ns=lambda: next(clock_ns),
        rng=rng,
        tick_ms=TICK_MS,
        start_ms=0,
        journal=journal,
        limits=limits or Limits(),
    )


def ask(service: ZooKeeperService, peer: Peer, request: Request[object]) -> None:
    service.take(peer, packed_int(1) + packed_int(request.opcode) + request.body)


def connect(service: ZooKeeperService) -> Peer:
    peer = Peer()
    service.connect(peer, messages.connect_request(0, 3000, 0, bytes(16)))
    return peer


def flush(journal: Journal, service: ZooKeeperService) -> int:
    """Flush as the server does; return the last durable zxid."""
    journal.synced = journal.write()
    journal.sync()
    if journal.is_long:
        journal.replace(service.tree.zxid, service.packed())
    return service.tree.zxid


class Day:
    """Random requests, expiries and flushes on a disk that may crash."""

    def __init__(self, seed: int, storage: MemoryStorage) -> None:
        self.seed = seed
        self.storage = storage
        self.states = {0: service_of(None, random.Random(seed)).packed()}
        self.durable = 0

    def run(self) -> None:
        """Run all steps, or until the disk raises `Crashed`."""
        rng = random.Random(self.seed)
        journal = StatesJournal(self.storage, AT, log_bytes_min=LOG_BYTES)
        service = service_of(journal, rng)
        journal.service, journal.states = service, self.states
        peers = [connect(service)]
        for _ in range(STEPS):
            kind = rng.random()
            if kind < 0.1:
                peers.append(connect(service))
            elif kind < 0.15 and len(peers) > 1:
                leaving = peers.pop(rng.randrange(len(peers)))
                ask(service, leaving, messages.close_session())
            elif kind < 0.2:
                service.expire()
            else:
                ask(service, rng.choice(peers), messages.multi(draw_ops(rng)))
            if rng.random() < 0.3:
                self.durable = flush(journal, service)
        assert any(peer.frames for peer in peers)

    def files(self) -> MemoryStorage:
        """Return the disk after a complete run."""
        self.run()
        return self.storage.after_kill()


def recovered(storage: MemoryStorage) -> ZooKeeperService:
    return service_of(Journal(storage, AT), random.Random(1))


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_call_leaves_all_that_was_answered(seed: int) -> None:
    fail_at, later = 0, 0
    rng = random.Random(seed)
    while True:
        fail_at += 1
        faults = Faults(fail_at, crash=True, short=rng.randint(0, 60))
        day = Day(seed, MemoryStorage(faults))
        try:
            day.run()
            break
        except Crashed:
            pass
        lost = [day.storage.after_power_loss(rng) for _ in range(3)]
        for left in (day.storage.after_kill(), *lost):
            service = recovered(left)
            zxid = service.tree.zxid
            assert zxid >= day.durable, fail_at
            assert service.packed() == day.states[zxid], fail_at
            later += zxid > day.durable
            # The machine crashes again after the recovery.
            again = recovered(left.after_power_loss(rng))
            assert again.packed() == service.packed()
    # Recovery must also have found some written but unconfirmed transactions.
    assert fail_at > 60
    assert later > 10


def test_a_log_that_ends_at_any_byte_is_read_up_to_its_last_whole_record() -> None:
    day = Day(7, MemoryStorage())
    files = day.files()
    (log,) = (it for it in files.names(AT) if it.startswith("log."))
    (snapshot,) = (it for it in files.names(AT) if it.startswith("snap"))
    content = read_whole(files, f"{AT}/{log}")
    first = int(log.partition(".")[2], 16)
    found = set()
    for size in range(len(content) + 1):
        left = MemoryStorage()
        left.make_directory(AT)
        for name, kept in (
            (log, content[:size]),
            (snapshot, read_whole(files, f"{AT}/{snapshot}")),
        ):
            left.open(f"{AT}/{name}", create=True).write(0, [kept], len(kept))
        service = recovered(left)
        assert service.packed() == day.states[service.tree.zxid]
        assert left.open(f"{AT}/{log}").size() <= size
        found.add(service.tree.zxid)
    assert found == set(range(first, max(found) + 1))
    assert len(found) > 2


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("snapshot", "is damaged: its checksum does not match"),
        ("java", "holds the data of a Java ZooKeeper"),
        ("number", "transaction 9999 in place of"),
        ("locked", "another process has its data in"),
    ],
)
def test_files_that_are_no_state_are_refused_in_one_sentence(
    damage: str, complaint: str
) -> None:
    storage = Day(3, MemoryStorage()).files()
    (snapshot,) = (it for it in storage.names(AT) if it.startswith("snap"))
    match damage:
        case "snapshot":
            storage.open(f"{AT}/{snapshot}").write(30, [b"\xff"], 1)
        case "java":
            storage.make_directory(f"{AT}/version-2")
        case "number":
            journal = Journal(storage, AT)
            journal.append(packed_transaction(9999, Refused()))
            journal.write()
            del journal
        case "locked":
            kept = storage.lock(f"{AT}/.lock")
            assert kept is not None
    with pytest.raises(JournalError, match=complaint):
        recovered(storage)


# ---- bounds -------------------------------------------------------------------------


def test_a_client_has_so_many_sessions_watches_and_ephemeral_znodes() -> None:
    limits = Limits(sessions=2, watches_per_connection=3, ephemerals_per_session=2)
    rng = random.Random(1)
    service = service_of(Journal(MemoryStorage(), AT), rng, limits=limits)
    one, two = connect(service), connect(service)
    with pytest.raises(MalformedFrame, match="more than 2 sessions"):
        connect(service)
    ask(service, one, messages.close_session())
    one = connect(service)
    for number in range(2):
        ask(service, one, messages.create(Create(f"/{number}", ephemeral=True)))
        assert one.code() == 0
    ask(service, one, messages.create(Create("/2", ephemeral=True)))
    assert one.code() == QUOTA_EXCEEDED
    ask(service, one, messages.create(Create("/2")))
    assert one.code() == 0
    many = [Create(f"/{number}", ephemeral=True) for number in "abc"]
    ask(service, two, messages.multi(many))
    assert two.code() == QUOTA_EXCEEDED
    ask(service, two, messages.get("/0", watch=True))
    ask(service, two, messages.children("/", watch=True))
    ask(service, two, messages.exists("/9", watch=True))
    # Two watches fire and make room for others.
    ask(service, one, messages.create(Create("/9")))
    for path in ("/8", "/6"):
        ask(service, two, messages.exists(path, watch=True))
        assert two.code() == NoNode.code
    with pytest.raises(MalformedFrame, match="more than 3 watches"):
        ask(service, two, messages.exists("/7", watch=True))
