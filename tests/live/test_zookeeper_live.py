"""ZooKeeper meets both contracts, and coordinators over it meet theirs.

The tests run with Java's server and with our in-memory server as a process. The latter
must give the same responses as the former.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from broker.client.network_client import connect_tcp
from broker.zookeeper.znodes import (
    Create,
    Delete,
    Event,
    SetData,
    Stat,
    Znode,
    ZooKeeperError,
)
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from experiments.processes.child import Binding
from experiments.processes.children import Child
from experiments.processes.loopback import free_ports
from experiments.processes.own_zookeeper import start_own_zookeeper
from experiments.processes.zookeeper import start_zookeeper, wait_for_zookeeper
from tests.broker.coordination import contract_coordinator
from tests.broker.coordination.member_place import MemberPlace
from tests.broker.zookeeper.contract_sessions import SessionsContract
from tests.broker.zookeeper.contract_znodes import ZnodesContract
from tests.broker.zookeeper.drawn_ops import draw_ops, draw_path
from tests.broker.zookeeper.own_chroot import OwnChroot, Scenario
from tests.broker.zookeeper.zoo import Zoo, heard, with_zoo

pytestmark = pytest.mark.live

START_S = 60.0


Start = Callable[..., Child]


@contextmanager
def running(start: Start, at: Path) -> Iterator[int]:
    """Run a server; yield its port."""
    (port,) = free_ports(1)
    bound = Binding(parent=os.getpid(), cpus=None, nice=0)
    with start(at, port, bound, lambda: None) as server:
        wait_for_zookeeper(server, port, START_S)
        yield port


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run Java's server for all tests; yield its port."""
    with running(start_zookeeper, tmp_path_factory.mktemp("java")) as port:
        yield port


@pytest.fixture(scope="module")
def own_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run the in-memory server for all tests; yield its port."""
    with running(start_own_zookeeper, tmp_path_factory.mktemp("own")) as port:
        yield port


class ServerContract(ZnodesContract, SessionsContract):
    """Base class of the contracts, for a server process."""

    chroots = itertools.count()
    port: int

    def run(self, scenario: Scenario) -> None:
        chroot = f"/contract-{next(self.chroots)}"
        trio.run(scenario, OwnChroot(f"127.0.0.1:{self.port}", chroot, connect_tcp))


class TestOfJava(ServerContract):
    @pytest.fixture(autouse=True)
    def _server(self, zookeeper: int) -> None:
        self.port = zookeeper


class TestOfTheServerInMemory(ServerContract):
    @pytest.fixture(autouse=True)
    def _server(self, own_zookeeper: int) -> None:
        self.port = own_zookeeper


class OverZooKeeper(contract_coordinator.CoordinatorContract):
    """Base class of the coordinator contract, for a server process."""

    chroots = itertools.count()
    port: int

    def run(self, scenario: contract_coordinator.Scenario) -> None:
        async def main() -> None:
            servers = f"127.0.0.1:{self.port}/cluster-{next(self.chroots)}"
            await scenario(MemberPlace(servers, connect_tcp, crashes=False))

        trio.run(main)


class TestCoordinatorOverJava(OverZooKeeper):
    @pytest.fixture(autouse=True)
    def _server(self, zookeeper: int) -> None:
        self.port = zookeeper


class TestCoordinatorOverTheServerInMemory(OverZooKeeper):
    @pytest.fixture(autouse=True)
    def _server(self, own_zookeeper: int) -> None:
        self.port = own_zookeeper


# ---- the same requests to both servers ----------------------------------------------

STEPS = 300


@pytest.mark.parametrize("seed", range(3))
def test_the_server_in_memory_answers_as_zookeeper_does(
    zookeeper: int, seed: int
) -> None:
    found: list[object] = []
    expected: list[object] = []

    async def in_zoo(zoo: Zoo) -> None:
        chroot = OwnChroot("zoo:2181", f"/same-{seed}", zoo.connect)
        found.extend(await transcript(chroot, seed))

    async def for_real() -> None:
        chroot = OwnChroot(f"127.0.0.1:{zookeeper}", f"/same-{seed}", connect_tcp)
        expected.extend(await transcript(chroot, seed))

    with_zoo(in_zoo)
    trio.run(for_real)
    # Most requests are refused; enough others must remain to compare.
    assert sum(not isinstance(it, Refused) for it in expected[::2]) > STEPS / 4
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours == theirs, f"step {step // 2} of seed {seed}"


class Refused(NamedTuple):
    code: int
    op: int | None


async def transcript(chroot: OwnChroot, seed: int) -> list[object]:
    """Make random requests in two sessions; return their results and the events."""
    rng = random.Random(seed)
    told: list[object] = []
    async with chroot.open() as one, chroot.open() as two:
        first = await one.exists("/")
        assert first is not None
        sessions = [one, two]
        for _ in range(STEPS):
            zk = rng.choice(sessions)
            try:
                answer = await _ask(zk, rng)
            except ZooKeeperError as error:
                answer = Refused(error.code, error.op)
            told.append(_comparable(answer, first.czxid, sessions))
            told.append([await _heard(it) for it in sessions])
    return told


async def _ask(zk: ZooKeeperSession, rng: random.Random) -> object:
    path, watch = draw_path(rng), rng.random() < 0.5
    match rng.randrange(6):
        case 0:
            return await zk.get(path, watch=watch)
        case 1:
            return await zk.exists(path, watch=watch)
        case 2:
            return await zk.children(path, watch=watch)
    ops = draw_ops(rng)
    match ops:
        case [Create() as op]:
            kind = {"ephemeral": op.ephemeral, "sequential": op.sequential}
            return await zk.create(op.path, op.data, **kind)
        case [SetData() as op]:
            return await zk.set(op.path, op.data, version=op.version)
        case [Delete() as op]:
            return await zk.delete(op.path, version=op.version)
    return await zk.multi(ops)


async def _heard(zk: ZooKeeperSession) -> list[Event]:
    # In the stream, events precede the response.
    await zk.exists("/")
    return heard(zk)


def _comparable(
    answer: object, first_zxid: int, sessions: list[ZooKeeperSession]
) -> object:
    """Replace zxids and session ids by relative numbers, and remove times."""
    if isinstance(answer, Stat):
        owners = [0, *(it.session_id for it in sessions)]
        return answer._replace(
            czxid=answer.czxid - first_zxid,
            mzxid=answer.mzxid - first_zxid,
            pzxid=answer.pzxid - first_zxid,
            ephemeral_owner=owners.index(answer.ephemeral_owner),
            ctime_ms=0,
            mtime_ms=0,
        )
    if type(answer) in (tuple, Znode):
        assert isinstance(answer, tuple)
        return [_comparable(it, first_zxid, sessions) for it in answer]
    return answer
