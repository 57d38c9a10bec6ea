"""What a session with ZooKeeper promises, whichever server stands behind it.

A subclass runs a scenario in a `Place`: a directory of its own on a server, and how to
get there. The expectations are sentences of ZooKeeper's Programmer's Guide and of its
``KeeperException``; the real server keeps them, too.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from broker.client.connection import Stream
from broker.zookeeper.jute import REQUEST_BYTES_MAX
from broker.zookeeper.session import Connect, ZooKeeperSession
from broker.zookeeper.znodes import (
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    OtherError,
    SessionEvent,
    SessionExpired,
    SetData,
    WatchEvent,
)

BAD_ARGUMENTS = -8
# Within what a server grants whose tick is 2 s.
TIMEOUT_MS = 6000
PATIENCE_S = 30


class Place:
    """A server, and a directory on it that nobody else uses."""

    def __init__(self, servers: str, chroot: str, connect: Connect) -> None:
        self.servers = servers
        self.chroot = chroot
        self.connect = connect
        self.streams: list[Stream] = []

    async def _connect(self, host: str, port: int) -> Stream:
        stream = await self.connect(host, port)
        self.streams.append(stream)
        return stream

    def session(self, seed: int = 1) -> ZooKeeperSession:
        """Return a session that does not run yet."""
        return ZooKeeperSession(
            self.servers + self.chroot,
            timeout_ms=TIMEOUT_MS,
            connect=self._connect,
            rng=random.Random(seed),
        )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[ZooKeeperSession]:
        """Run a session for as long as the body, then close it."""
        session = self.session()
        async with trio.open_nursery() as nursery:
            await nursery.start(session.run)
            await session.make_chroot()
            assert await next_event(session) is SessionEvent.CONNECTED
            yield session
            await session.close()


Scenario = Callable[[Place], Awaitable[None]]


async def next_event(session: ZooKeeperSession) -> Event:
    with trio.fail_after(PATIENCE_S):
        return await session.events.receive()


def expect_no_event(session: ZooKeeperSession) -> None:
    with pytest.raises(trio.WouldBlock):
        session.events.receive_nowait()


class ZnodesContract:
    """Inherited once per server."""

    def run(self, scenario: Scenario) -> None:
        """Run a scenario in a place of its own."""
        raise NotImplementedError

    # ---- znodes ---------------------------------------------------------------------

    def test_what_was_written_is_read(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                assert await zk.create("/a", b"one") == "/a"
                data, stat = await zk.get("/a")
                assert (data, stat.version, stat.data_length) == (b"one", 0, 3)
                assert stat.ephemeral_owner == 0
                assert stat.czxid == stat.mzxid == stat.pzxid
                newer = await zk.set("/a", b"three")
                assert (newer.version, newer.data_length) == (1, 5)
                assert newer.czxid == stat.czxid
                assert newer.mzxid > stat.mzxid
                assert await zk.get("/a") == (b"three", newer)
                assert await zk.exists("/a") == newer
                await zk.delete("/a")
                assert await zk.exists("/a") is None

        self.run(scenario)

    def test_children_have_names_and_their_parent_counts_them(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                for path in ("/p", "/p/b", "/p/a", "/p/a/deep"):
                    await zk.create(path)
                assert await zk.children("/p") == ("a", "b")
                stat = await zk.exists("/p")
                deep = await zk.exists("/p/a/deep")
                assert stat is not None
                assert deep is not None
                assert (stat.num_children, stat.cversion, stat.version) == (2, 2, 0)
                # Grandchildren are none of its affair.
                assert stat.czxid < stat.pzxid < deep.czxid
                await zk.delete("/p/b")
                stat = await zk.exists("/p")
                assert stat is not None
                assert (stat.num_children, stat.cversion) == (1, 3)

        self.run(scenario)

    def test_versions_guard_writes(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/a")
                await zk.set("/a", b"x", version=0)
                with pytest.raises(BadVersion, match="/a"):
                    await zk.set("/a", b"y", version=0)
                with pytest.raises(BadVersion):
                    await zk.delete("/a", version=0)
                await zk.delete("/a", version=1)

        self.run(scenario)

    def test_what_cannot_be_is_told_by_name(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/a")
                await zk.create("/a/b")
                await zk.create("/e", ephemeral=True)
                with pytest.raises(NodeExists):
                    await zk.create("/a")
                with pytest.raises(NoNode):
                    await zk.create("/x/y")
                with pytest.raises(NoNode):
                    await zk.get("/x")
                with pytest.raises(NoNode):
                    await zk.set("/x", b"")
                with pytest.raises(NoNode):
                    await zk.delete("/x")
                with pytest.raises(NoNode):
                    await zk.children("/x")
                with pytest.raises(NotEmpty):
                    await zk.delete("/a")
                with pytest.raises(NoChildrenForEphemerals):
                    await zk.create("/e/child")
                # The version is looked at first.
                with pytest.raises(BadVersion):
                    await zk.delete("/a", version=9)

        self.run(scenario)

    @pytest.mark.parametrize("path", ["/a/", "/a\x01", "/a/.", "/a/..", "/\ue000"])
    def test_paths_have_a_form(self, path: str) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/a")
                with pytest.raises(OtherError) as raised:
                    await zk.create(path)
                assert raised.value.code == BAD_ARGUMENTS

        self.run(scenario)

    def test_sequential_names_grow_and_none_is_given_twice(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/q")
                first = await zk.create("/q/n", sequential=True)
                second = await zk.create("/q/n", sequential=True, ephemeral=True)
                assert (first, second) == ("/q/n0000000000", "/q/n0000000001")
                await zk.delete(second)
                assert await zk.create("/q/m", sequential=True) == "/q/m0000000002"
                assert await zk.create("/q/", sequential=True) == "/q/0000000003"

        self.run(scenario)

    def test_data_may_be_as_large_as_a_frame_allows(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                large = bytes(REQUEST_BYTES_MAX - 200)
                await zk.create("/large", large)
                assert (await zk.get("/large"))[0] == large
                with pytest.raises(OtherError) as raised:
                    await zk.set("/large", bytes(REQUEST_BYTES_MAX))
                assert raised.value.code == BAD_ARGUMENTS

        self.run(scenario)

    def test_calls_made_side_by_side_are_carried_out_in_order(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/a")
                stats = {}

                async def write(number: int) -> None:
                    stats[number] = await zk.set("/a", b"%d" % number)

                async with trio.open_nursery() as nursery:
                    for number in range(100):
                        nursery.start_soon(write, number)
                order = sorted(stats, key=lambda number: stats[number].version)
                # Trio starts tasks in an order of its own; versions follow the calls.
                data, stat = await zk.get("/a")
                assert stat.version == 100
                assert data == b"%d" % order[-1]
                assert [stats[n].version for n in order] == list(range(1, 101))

        self.run(scenario)

    # ---- multi ----------------------------------------------------------------------

    def test_a_multi_does_everything_in_one_transaction(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/old")
                await zk.create("/epoch", b"4")
                created, _, stat, nothing, numbered = await zk.multi(
                    [
                        Create("/new", b"data", ephemeral=True),
                        Check("/epoch", 0),
                        SetData("/epoch", b"5", 0),
                        Delete("/old"),
                        Create("/new-", sequential=True),
                    ]
                )
                assert (created, nothing) == ("/new", None)
                assert isinstance(numbered, str)
                assert numbered.startswith("/new-00000000")
                assert await zk.get("/epoch") == (b"5", stat)
                new, other = await zk.exists("/new"), await zk.exists(numbered)
                assert new is not None
                assert other is not None
                assert new.czxid == other.czxid == stat.mzxid  # type: ignore[union-attr]
                assert new.ephemeral_owner == zk.session_id
                assert await zk.exists("/old") is None

        self.run(scenario)

    def test_a_multi_that_fails_does_nothing_and_names_the_operation(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/a", b"old")
                before = await zk.exists("/")
                with pytest.raises(BadVersion) as raised:
                    await zk.multi(
                        [
                            Create("/b"),
                            Create("/b/c"),
                            SetData("/a", b"new"),
                            Check("/a", 7),
                            Delete("/a"),
                        ]
                    )
                assert (raised.value.op, raised.value.path) == (3, "/a")
                assert (await zk.get("/a"))[0] == b"old"
                assert await zk.exists("/") == before
                with pytest.raises(NodeExists) as exists:
                    await zk.multi([Create("/a"), Create("/a")])
                assert exists.value.op == 0
                assert await zk.multi([]) == ()

        self.run(scenario)

    def test_a_multi_sees_what_it_has_done_so_far(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                results = await zk.multi(
                    [
                        Create("/a"),
                        Create("/a/b"),
                        SetData("/a", b"x", 0),
                        Delete("/a/b", 0),
                        Delete("/a", 1),
                    ]
                )
                assert results[:2] == ("/a", "/a/b")
                assert await zk.children("/") == ()

        self.run(scenario)

    # ---- watches --------------------------------------------------------------------

    def test_a_watch_on_data_goes_off_once(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk, place.open() as other:
                await zk.create("/a")
                await zk.get("/a", watch=True)
                await other.set("/a", b"1")
                await other.set("/a", b"2")
                changed = WatchEvent(EventKind.DATA_CHANGED, "/a")
                assert await next_event(zk) == changed
                assert (await zk.get("/a"))[0] == b"2"
                expect_no_event(zk)

        self.run(scenario)

    def test_an_event_comes_before_the_answer_that_shows_the_change(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/a")
                await zk.get("/a", watch=True)
                await zk.set("/a", b"1")
                # Already there: the answer has not overtaken it.
                event = zk.events.receive_nowait()
                assert event == WatchEvent(EventKind.DATA_CHANGED, "/a")

        self.run(scenario)

    def test_a_watch_that_exists_has_left_sees_a_znode_come_and_go(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                assert await zk.exists("/a", watch=True) is None
                await zk.create("/a")
                assert await next_event(zk) == WatchEvent(EventKind.CREATED, "/a")
                assert await zk.exists("/a", watch=True) is not None
                await zk.delete("/a")
                assert await next_event(zk) == WatchEvent(EventKind.DELETED, "/a")
                expect_no_event(zk)

        self.run(scenario)

    def test_a_watch_on_children_sees_them_come_and_go_but_not_change(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/p")
                await zk.create("/p/a")
                changed = WatchEvent(EventKind.CHILDREN_CHANGED, "/p")
                await zk.children("/p", watch=True)
                await zk.set("/p/a", b"x")
                await zk.set("/p", b"x")
                await zk.create("/p/a/deep")
                expect_no_event(zk)
                await zk.create("/p/b")
                assert await next_event(zk) == changed
                await zk.children("/p", watch=True)
                await zk.delete("/p/b")
                assert await next_event(zk) == changed

        self.run(scenario)

    def test_who_watches_data_and_children_hears_of_a_deletion_once(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/p")
                await zk.get("/p", watch=True)
                await zk.exists("/p", watch=True)
                await zk.children("/p", watch=True)
                await zk.delete("/p")
                assert await next_event(zk) == WatchEvent(EventKind.DELETED, "/p")
                await zk.create("/p")
                expect_no_event(zk)

        self.run(scenario)

    def test_reading_what_is_not_there_leaves_no_watch(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                with pytest.raises(NoNode):
                    await zk.get("/a", watch=True)
                with pytest.raises(NoNode):
                    await zk.children("/a", watch=True)
                await zk.create("/a")
                expect_no_event(zk)

        self.run(scenario)

    def test_a_multi_sets_off_watches_only_if_it_is_done(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.create("/a")
                await zk.get("/a", watch=True)
                with pytest.raises(BadVersion):
                    await zk.multi([SetData("/a", b"1"), Check("/a", 9)])
                expect_no_event(zk)
                await zk.multi([SetData("/a", b"1"), Check("/a", 1)])
                changed = WatchEvent(EventKind.DATA_CHANGED, "/a")
                assert await next_event(zk) == changed

        self.run(scenario)

    # ---- sessions -------------------------------------------------------------------

    def test_ephemeral_znodes_go_with_their_session(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                async with place.open() as other:
                    await other.create("/e", ephemeral=True)
                    await other.create("/stays")
                    stat = await zk.exists("/e", watch=True)
                    assert stat is not None
                    assert stat.ephemeral_owner == other.session_id != zk.session_id
                assert await next_event(zk) == WatchEvent(EventKind.DELETED, "/e")
                assert await zk.children("/") == ("stays",)

        self.run(scenario)

    def test_a_closed_session_answers_nothing(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk:
                await zk.close()
                with pytest.raises(SessionExpired):
                    await zk.get("/")

        self.run(scenario)

    def test_a_session_outlives_its_connection(self) -> None:
        async def scenario(place: Place) -> None:
            async with place.open() as zk, place.open() as other:
                session_id = zk.session_id
                await zk.create("/e", ephemeral=True)
                await zk.create("/d")
                await zk.create("/p")
                await zk.get("/d", watch=True)
                await zk.get("/e", watch=True)
                await zk.exists("/born", watch=True)
                await zk.children("/p", watch=True)
                await place.streams[0].aclose()
                # Changed while nobody could be told.
                await other.set("/d", b"new")
                await other.create("/born")
                await other.create("/p/child")
                assert await next_event(zk) is SessionEvent.DISCONNECTED
                assert await next_event(zk) is SessionEvent.CONNECTED
                assert zk.session_id == session_id
                missed = {await next_event(zk) for _ in range(3)}
                assert missed == {
                    WatchEvent(EventKind.DATA_CHANGED, "/d"),
                    WatchEvent(EventKind.CREATED, "/born"),
                    WatchEvent(EventKind.CHILDREN_CHANGED, "/p"),
                }
                # The one that missed nothing stands.
                await other.delete("/e")
                assert await next_event(zk) == WatchEvent(EventKind.DELETED, "/e")

        self.run(scenario)
