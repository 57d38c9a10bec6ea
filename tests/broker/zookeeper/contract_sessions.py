"""Contract of sessions and watches, for every server."""

from __future__ import annotations

import pytest

from broker.zookeeper.znodes import (
    BadVersion,
    Check,
    EventKind,
    NoNode,
    SessionEvent,
    SessionExpired,
    SetData,
    WatchEvent,
)
from tests.broker.zookeeper.own_chroot import (
    OwnChroot,
    Scenario,
    expect_no_event,
    next_event,
)


class SessionsContract:
    """Base class of contract tests; a subclass per server."""

    def run(self, scenario: Scenario) -> None:
        """Run a scenario below its own chroot."""
        raise NotImplementedError

    # ---- watches --------------------------------------------------------------------

    def test_a_watch_on_data_goes_off_once(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk, chroot.open() as other:
                await zk.create("/a")
                await zk.get("/a", watch=True)
                await other.set("/a", b"1")
                await other.set("/a", b"2")
                changed = WatchEvent(EventKind.DATA_CHANGED, "/a")
                assert await next_event(zk) == changed
                assert (await zk.get("/a")).data == b"2"
                expect_no_event(zk)

        self.run(scenario)

    def test_an_event_comes_before_the_answer_that_shows_the_change(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                await zk.create("/a")
                await zk.get("/a", watch=True)
                await zk.set("/a", b"1")
                # The event arrives before the response of the write.
                event = zk.events.receive_nowait()
                assert event == WatchEvent(EventKind.DATA_CHANGED, "/a")

        self.run(scenario)

    def test_a_watch_that_exists_has_left_sees_a_znode_come_and_go(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                assert await zk.exists("/a", watch=True) is None
                await zk.create("/a")
                assert await next_event(zk) == WatchEvent(EventKind.CREATED, "/a")
                assert await zk.exists("/a", watch=True) is not None
                await zk.delete("/a")
                assert await next_event(zk) == WatchEvent(EventKind.DELETED, "/a")
                expect_no_event(zk)

        self.run(scenario)

    def test_a_watch_on_children_sees_them_come_and_go_but_not_change(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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

    def test_a_watcher_of_data_and_children_is_notified_of_a_deletion_once(
        self,
    ) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                with pytest.raises(NoNode):
                    await zk.get("/a", watch=True)
                with pytest.raises(NoNode):
                    await zk.children("/a", watch=True)
                await zk.create("/a")
                expect_no_event(zk)

        self.run(scenario)

    def test_a_multi_sets_off_watches_only_if_it_is_done(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                async with chroot.open() as other:
                    await other.create("/e", ephemeral=True)
                    await other.create("/stays")
                    stat = await zk.exists("/e", watch=True)
                    assert stat is not None
                    assert stat.ephemeral_owner == other.session_id != zk.session_id
                assert await next_event(zk) == WatchEvent(EventKind.DELETED, "/e")
                assert await zk.children("/") == ("stays",)

        self.run(scenario)

    def test_a_closed_session_answers_nothing(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                await zk.close()
                with pytest.raises(SessionExpired):
                    await zk.get("/")

        self.run(scenario)

    def test_a_session_outlives_its_connection(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk, chroot.open() as other:
                session_id = zk.session_id
                await zk.create("/e", ephemeral=True)
                await zk.create("/d")
                await zk.create("/p")
                await zk.get("/d", watch=True)
                await zk.get("/e", watch=True)
                await zk.exists("/born", watch=True)
                await zk.children("/p", watch=True)
                await chroot.streams[0].aclose()
                # Changes while the session has no connection.
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
                # A watch without a missed event is still set.
                await other.delete("/e")
                assert await next_event(zk) == WatchEvent(EventKind.DELETED, "/e")

        self.run(scenario)
