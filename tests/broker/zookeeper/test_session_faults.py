"""Broken connections, killed servers and expired sessions, in virtual time."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing

from broker.zookeeper.znodes import (
    ConnectionLoss,
    EventKind,
    NodeExists,
    SessionEvent,
    SessionExpired,
    WatchEvent,
)
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from tests.broker.zookeeper.zoo import TIMEOUT_MS, Zoo, with_zoo

TICK_S = 2.0
CONNECTED, DISCONNECTED = SessionEvent.CONNECTED, SessionEvent.DISCONNECTED


async def until(session: ZooKeeperSession, event: object) -> None:
    with trio.fail_after(60):
        async for each in session.events:
            if each == event:
                return


async def until_there_are(zoo: Zoo, count: int) -> None:
    with trio.fail_after(1):
        while True:
            if len(zoo.service.tree.children("/")) == count:
                return
            await trio.sleep(0.000_005)


# ---- cuts ---------------------------------------------------------------------------


def test_unanswered_requests_of_a_broken_connection_are_lost_or_done() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        outcomes = []

        async def create(number: int) -> None:
            try:
                outcomes.append(await zk.create(f"/{number}"))
            except ConnectionLoss as lost:
                outcomes.append(lost)

        for tens in (0, 1):
            async with trio.open_nursery() as nursery:
                for number in range(10 * tens, 10 * tens + 10):
                    nursery.start_soon(create, number)
                await trio.testing.wait_all_tasks_blocked()
                # Latency is at least 20 us: requests or responses are in flight.
                await until_there_are(zoo, 10 * tens)
                zoo.cut_all()
        assert [type(it) for it in outcomes] == [ConnectionLoss] * 20
        # Lost requests were not executed; requests with a lost response were.
        names = await zk.children("/")
        assert [int(name) for name in names] == list(range(10, 20))

    with_zoo(scenario)


def test_requests_without_a_connection_wait_for_the_next() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        await zoo.stop(2181)
        await until(zk, DISCONNECTED)
        order = []

        async def create(path: str) -> None:
            order.append(await zk.create(path))

        async with trio.open_nursery() as nursery:
            for path in ("/a", "/a/b", "/a/b/c"):
                nursery.start_soon(create, path)
                await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(3)
            assert order == []
            await zoo.start(2181)
        # In another order a parent would be missing.
        assert set(order) == {"/a", "/a/b", "/a/b/c"}

    with_zoo(scenario)


def test_abandoned_requests_are_not_sent() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        await zoo.stop(2181)
        await until(zk, DISCONNECTED)
        with trio.move_on_after(1):
            await zk.create("/given-up")
        await zoo.start(2181)
        assert await zk.children("/") == ()

    with_zoo(scenario)


def test_a_session_moves_to_another_server_and_takes_its_watches_along() -> None:
    async def scenario(zoo: Zoo) -> None:
        await zoo.start(2182)
        zk = await zoo.opened("one:2181,two:2182/chroot")
        await zk.make_chroot()
        await zk.create("/e", ephemeral=True)
        await zk.get("/e", watch=True)
        (_, first), *_ = zoo.attempts
        await zoo.stop(first)
        await until(zk, CONNECTED)
        await until(zk, CONNECTED)
        assert {port for _, port in zoo.attempts} == {2181, 2182}
        assert await zk.exists("/e") is not None
        await zk.set("/e", b"x")
        await until(zk, WatchEvent(EventKind.DATA_CHANGED, "/e"))

    with_zoo(scenario)


def test_the_old_connection_of_a_session_that_has_moved_is_closed() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        (old,) = zoo.streams
        # The server does not notice the break; only the client closes the connection.
        await old.aclose()
        await until(zk, CONNECTED)
        await until(zk, CONNECTED)
        assert await zk.children("/") == ()

    with_zoo(scenario)


def test_attempts_back_off_to_one_a_second() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        await zoo.stop(2181)
        began_s = trio.current_time()
        await trio.sleep(60)
        times = [when for when, _ in zoo.attempts if when > began_s]
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert gaps[0] < 0.25
        # Jitter is 20 % in either direction.
        assert all(0.8 <= gap <= 1.2 for gap in gaps[5:])
        assert "2181" in zk.why

    with_zoo(scenario)


def test_many_watches_are_set_again_in_frames_that_a_server_takes() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        names = [f"/{number:04d}-{'x' * 1000}" for number in range(1500)]
        for name in names:
            await zk.exists(name, watch=True)
        zoo.cut_all()
        await until(zk, DISCONNECTED)
        await until(zk, CONNECTED)
        other = await zoo.opened("zoo:2181")
        for name in (names[0], names[700], names[-1]):
            await other.create(name)
            await until(zk, WatchEvent(EventKind.CREATED, name))

    with_zoo(scenario)


def test_no_event_is_lost_whenever_lines_break() -> None:
    """A reader that reads again at each event sees the newest value in the end."""

    async def scenario(zoo: Zoo) -> None:
        await zoo.start(2182)
        await zoo.start(2183)
        reader = await zoo.opened("one:2181,two:2182")
        writer = await zoo.opened("three:2183")
        await writer.create("/a", b"0")
        known: list[bytes] = []

        async def read() -> None:
            while True:
                try:
                    known.append((await reader.get("/a", watch=True)).data)
                except ConnectionLoss:
                    continue
                while isinstance(await reader.events.receive(), SessionEvent):
                    pass

        zoo.nursery.start_soon(read)
        for number in range(1, 200):
            await writer.set("/a", b"%d" % number)
            if zoo.rng.random() < 0.3:
                for stream in [zoo.streams[0], *zoo.streams[2:]]:
                    zoo.network.cut(stream.connection)
            await trio.sleep(zoo.rng.random() * 0.1)
        await trio.sleep(2)
        assert known[-1] == b"199"
        assert [int(it) for it in known] == sorted(int(it) for it in known)

    for seed in range(5):
        with_zoo(scenario, seed=seed)


# ---- expiry -------------------------------------------------------------------------


def test_a_session_expires_when_nothing_is_heard_of_it_and_not_before() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        await zoo.start(2182)
        witness = await zoo.opened("zoo:2182")
        await zk.create("/e", ephemeral=True)
        # Pings keep the session alive.
        await trio.sleep(600)
        assert await witness.exists("/e", watch=True) is not None
        zoo.unreachable.add(2181)
        zoo.network.cut(zoo.streams[0].connection)
        cut_s = trio.current_time()
        await until(witness, WatchEvent(EventKind.DELETED, "/e"))
        waited_s = trio.current_time() - cut_s
        # The last ping is up to a third of the time-out old; a tick rounds up.
        assert TIMEOUT_MS / 1000 * 2 / 3 <= waited_s <= TIMEOUT_MS / 1000 + TICK_S
        zoo.unreachable.clear()
        await until(zk, SessionEvent.EXPIRED)
        with pytest.raises(SessionExpired):
            await zk.exists("/e")
        with pytest.raises(trio.EndOfChannel):
            await zk.events.receive()

    with_zoo(scenario)


def test_calls_that_wait_for_a_connection_learn_of_the_expiry() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        await zoo.stop(2181)
        await until(zk, DISCONNECTED)
        zoo.service.expire_now(zk.session_id)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(expect_expired, zk)
            await trio.sleep(1)
            await zoo.start(2181)

    async def expect_expired(zk: ZooKeeperSession) -> None:
        with pytest.raises(SessionExpired):
            await zk.get("/")

    with_zoo(scenario)


def test_a_restart_gives_sessions_their_whole_time_again() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        await zk.create("/e", ephemeral=True)
        await zoo.stop(2181)
        # Longer than the time-out; but no server was running to count the time.
        await trio.sleep(100)
        await zoo.start(2181)
        await until(zk, CONNECTED)
        await until(zk, CONNECTED)
        assert await zk.exists("/e") is not None

    with_zoo(scenario)


def test_a_killed_client_leaves_ephemerals_until_the_session_expires() -> None:
    async def scenario(zoo: Zoo) -> None:
        witness = await zoo.opened("zoo:2181")
        with trio.CancelScope() as life:
            async with trio.open_nursery() as nursery:
                dying = zoo.session("zoo:2181")
                await nursery.start(dying.run)
                await dying.create("/e", ephemeral=True)
                life.cancel()
        assert await witness.exists("/e") is not None
        with pytest.raises(NodeExists):
            await witness.create("/e")
        await trio.sleep(TIMEOUT_MS / 1000 + TICK_S)
        assert await witness.exists("/e") is None

    with_zoo(scenario)
