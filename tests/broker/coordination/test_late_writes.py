"""Late writes of a deposed controller have no effect.

Three members share a ZooKeeper in memory, and an operator keeps the controller busy. At
random, the controller's next write is delayed and the controller is deposed meanwhile:
its session expires, or /controller is deleted and the session lives on. The other
members elect a new controller before the write arrives. Each write that the tree
accepts is compared with the elections in the tree.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Final

import trio
import trio.testing

from broker.config import BrokerConfig
from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.coordination.coordinator_roles import Coordinator
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import write_log_dir_event
from broker.coordination.zookeeper.layout.topic_records import (
    read_leadership,
    read_topic,
    write_partitions,
    write_reassignment,
)
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.coordination.zookeeper.topic_writes import create_topic, request_deletion
from broker.coordination.zookeeper.zookeeper_coordinator import zookeeper_coordinator
from broker.disk.identity import draw_uuid
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.zookeeper.znodes import (
    Check,
    Create,
    Delete,
    NodeExists,
    Op,
    SetData,
    ZooKeeperError,
)
from broker.zookeeper.zookeeper_messages import OpCode
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from simulation.virtual_time.apis import START_MS
from simulation.virtual_time.memory_network import MemoryStream
from tests.broker.coordination.contract_coordinator import until
from tests.broker.coordination.member_place import MemberWitness
from tests.broker.zookeeper.zoo import TIMEOUT_MS, Zoo, with_zoo

SEEDS = range(6)
CHANGES: Final = frozenset({OpCode.MULTI, OpCode.DELETE, OpCode.SET_DATA})
BROKERS: Final = (0, 1, 2)
TOPICS: Final = ("s", "t", "u", "v")
ERRANDS: Final = 60
# Longer than an election, shorter than the client's timeout for its server.
HELD_S: Final = (0.01, 2.0)


class LateStream:
    """A member's connection to ZooKeeper, which may delay writes."""

    def __init__(
        self, stream: MemoryStream, delay: Callable[[], Awaitable[None]]
    ) -> None:
        self._stream = stream
        self._delay = delay

    async def send_all(self, data: bytes) -> None:
        if not CHANGES.isdisjoint(opcodes(data)):
            await self._delay()
        await self._stream.send_all(data)

    async def receive_some(self) -> bytes:
        return await self._stream.receive_some()

    async def aclose(self) -> None:
        await self._stream.aclose()


def opcodes(frames: bytes) -> list[int]:
    """Return the operations of frames, each with a length, an xid and an operation."""
    found, at = [], 0
    while at < len(frames):
        found.append(int.from_bytes(frames[at + 8 : at + 12]))
        at += 4 + int.from_bytes(frames[at : at + 4])
    return found


class Records:
    """The tree's view: the current controller, rejected late writes, and faults."""

    def __init__(self, zoo: Zoo) -> None:
        self.epoch = 0
        self.controller = 0
        self.members: set[int] = set()
        self.refused: Counter[str] = Counter()
        self.faults: list[str] = []
        self._tree = zoo.service.tree
        self._transact = self._tree.transact
        vars(self._tree)["transact"] = self.transact

    def transact(self, ops: Sequence[Op], *, session: int, now_ms: int) -> Any:
        controller, epoch = self.controller, self.epoch
        try:
            done = self._transact(ops, session=session, now_ms=now_ms)
        except ZooKeeperError as refused:
            if isinstance(ops[0], Check) and refused.op == 0:
                self.refused.update(kind(each) for each in ops[1:])
            raise
        if any(it.path == paths.CONTROLLER and isinstance(it, Create) for it in ops):
            self._elected(session)
        elif session in self.members:
            for op in ops:
                self._judge(op, session == controller, epoch)
        return done

    def _elected(self, session: int) -> None:
        epoch = int(self._tree.get(paths.CONTROLLER_EPOCH)[0])
        if epoch != self.epoch + 1:
            self.faults.append(f"epoch {epoch} follows {self.epoch}")
        self.epoch, self.controller = epoch, session

    def _judge(self, op: Op, is_controller: bool, epoch: int) -> None:
        if kind(op) == "other":
            return
        if not is_controller:
            self.faults.append(f"{op} by another than the controller of epoch {epoch}")
        if kind(op) == "state" and isinstance(op, Create | SetData):
            written = read_leadership(op.data, 0).controller_epoch
            if written != epoch:
                self.faults.append(f"{op} of epoch {written} in epoch {epoch}")


def kind(op: Op) -> str:
    """Return the kind of a controller's write, or "other" for any other write."""
    if op.path.endswith("/state"):
        return "state"
    if isinstance(op, SetData) and op.path.startswith(f"{paths.TOPICS}/"):
        return "assignment"
    if isinstance(op, Delete) and op.path.startswith(f"{paths.TOPICS}/"):
        return "topic"
    if isinstance(op, Create) or op.path.startswith("/brokers/ids"):
        return "other"
    for notified in (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS, "/admin"):
        if op.path.startswith(notified):
            return notified
    return "other"


class Fleet:
    """Three members with witnesses as brokers, and an operator."""

    def __init__(self, zoo: Zoo, records: Records) -> None:
        self.zoo = zoo
        self.records = records
        self.rng = random.Random(zoo.rng.random())
        self.is_calm = False
        self.brokers = [MemberWitness(config(number)) for number in BROKERS]
        self.coordinators = [self._coordinator(each) for each in self.brokers]
        self.operator: RetryingZnodes

    def _coordinator(self, broker: MemberWitness) -> Coordinator:
        number = broker.config.node_id
        sessions: list[ZooKeeperSession] = []

        async def connect(host: str, port: int) -> LateStream:
            stream = await self.zoo.connect(host, port)
            return LateStream(stream, lambda: self._delay(sessions[-1]))

        def open_session() -> ZooKeeperSession:
            sessions.append(
                ZooKeeperSession(
                    "zoo:2181",
                    timeout_ms=TIMEOUT_MS,
                    connect=connect,
                    rng=random.Random(self.rng.random()),
                )
            )
            return sessions[-1]

        return zookeeper_coordinator(
            broker.config,
            open_session=open_session,
            connect=self._connect_to_broker,
            new_id=lambda: draw_uuid(self.rng),
            now_ns=lambda: 0,
            now_ms=lambda: START_MS + number,
            rng=random.Random(self.rng.random()),
        )

    async def _connect_to_broker(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        number = int(host.rpartition("-")[2])
        self.zoo.nursery.start_soon(self.brokers[number].obey, theirs)
        return ours

    async def _delay(self, session: ZooKeeperSession) -> None:
        """Delay a write at random; the controller may be deposed during its delay."""
        await trio.lowlevel.checkpoint()
        self.records.members.add(session.session_id)
        is_controller = session.session_id == self.records.controller
        if self.is_calm or self.rng.random() < (0.6 if is_controller else 0.9):
            return
        if is_controller and self.rng.random() < 0.8:
            if self.rng.random() < 0.7:
                await self.operator.delete(paths.CONTROLLER)
            else:
                self.zoo.service.expire_now(session.session_id)
        await trio.sleep(self.rng.uniform(*HELD_S))

    async def start(self) -> None:
        """Start all three members."""
        self.operator = RetryingZnodes(await self.zoo.opened("zoo:2181"))
        for broker, coordinator in zip(self.brokers, self.coordinators, strict=True):
            await coordinator.membership.prepare()
            coordinator.membership.open(broker)
            self.zoo.nursery.start_soon(coordinator.membership.run, nullcontext())
        await until(lambda: len(self.governing()) == 1)

    def governing(self) -> list[int]:
        """Return the members that believe they are the controller."""
        found = []
        for number in BROKERS:
            with suppress(KafkaError):
                self.coordinators[number].controller.check_is_controller()
                found.append(number)
        return found

    # ---- work for the controller ----------------------------------------------------

    async def errand(self) -> None:
        """Change znodes at random, as operators and brokers do."""
        rng, znodes = self.rng, self.operator
        name = rng.choice(TOPICS)
        keys = [TopicPartition(name, index) for index in range(2)]
        match rng.randrange(6):
            case 0 | 1:
                replicas = ReplicaAssignment(tuple(rng.sample(BROKERS, 2)))
                topic = TopicAssignment(draw_uuid(rng), {0: replicas, 1: replicas})
                with suppress(KafkaError):
                    await create_topic(znodes, name, topic, {})
            case 2:
                with suppress(KafkaError):
                    await request_deletion(znodes, name)
            case 3:
                wanted = {key: tuple(rng.sample(BROKERS, 2)) for key in keys}
                with suppress(NodeExists):
                    await znodes.create(paths.REASSIGNMENT, write_reassignment(wanted))
            case 4:
                await znodes.create(
                    f"{paths.ISR_CHANGES}/isr_change_",
                    write_partitions(keys),
                    sequential=True,
                )
            case 5:
                event = write_log_dir_event(rng.choice(BROKERS))
                await znodes.create(paths.LOG_DIR_EVENT, event, sequential=True)

    # ---- final state ----------------------------------------------------------------

    def is_settled(self) -> bool:
        """Return whether all requests are done and all brokers are up to date."""
        tree = self.zoo.service.tree
        asked = (paths.TOPICS_TO_DELETE, paths.ISR_CHANGES, paths.LOG_DIR_EVENTS)
        return (
            len(self.governing()) == 1
            and not any(tree.children(path) for path in asked)
            and len(tree.children(paths.BROKER_IDS)) == len(BROKERS)
            and all(each.told == self.leaders() for each in self.brokers)
            and all(set(each.held) == self.placed_on(each) for each in self.brokers)
        )

    def placed_on(self, broker: MemberWitness) -> set[TopicPartition]:
        """Return the partitions that the znodes place on a broker."""
        tree = self.zoo.service.tree
        return {
            TopicPartition(name, index)
            for name in tree.children(paths.TOPICS)
            for index, it in read_topic(
                tree.get(paths.topic(name))[0]
            ).partitions.items()
            if broker.config.node_id in it.replicas
        }

    def leaders(self) -> dict[TopicPartition, int]:
        """Return the leader of each partition in the znodes, or -1 without one."""
        tree, found = self.zoo.service.tree, {}
        for name in tree.children(paths.TOPICS):
            topic = read_topic(tree.get(paths.topic(name))[0])
            for index in topic.partitions:
                key = TopicPartition(name, index)
                found[key] = -1
                if tree.stat(paths.partition_state(key)) is not None:
                    data, stat = tree.get(paths.partition_state(key))
                    found[key] = read_leadership(data, stat.version).leader
        return found


def config(number: int) -> BrokerConfig:
    return BrokerConfig.load(
        None,
        {
            "zookeeper.connect": "zoo:2181",
            "broker.id": str(number),
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://broker-{number}:9092",
        },
    )


def refused_in(seed: int) -> Counter[str]:
    """Run a seed; return the rejected writes of deposed controllers, by kind."""
    refused: Counter[str] = Counter()

    async def scenario(zoo: Zoo) -> None:
        records = Records(zoo)
        fleet = Fleet(zoo, records)
        await fleet.start()
        for _ in range(ERRANDS):
            await fleet.errand()
            await trio.sleep(fleet.rng.expovariate(8))
        fleet.is_calm = True
        await until(fleet.is_settled)
        assert records.faults == []
        refused.update(records.refused)

    print(f"seed {seed}")
    with_zoo(scenario, seed=seed)
    return refused


def test_nothing_is_written_by_who_is_no_longer_controller() -> None:
    refused: Counter[str] = Counter()
    for seed in SEEDS:
        refused.update(refused_in(seed))
    # The seeds must include late writes of these kinds.
    kinds = {"state", "topic", "/admin", paths.ISR_CHANGES, paths.LOG_DIR_EVENTS}
    assert kinds <= refused.keys()
