"""Contract of znodes, for every server.

A subclass runs each scenario below a chroot. The expectations come from ZooKeeper's
Programmer's Guide and its ``KeeperException``; the real server passes these tests, too.
"""

from __future__ import annotations

import pytest
import trio

from broker.zookeeper.jute import REQUEST_BYTES_MAX
from broker.zookeeper.znodes import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    OtherError,
    SetData,
    Stat,
)
from tests.broker.zookeeper.own_chroot import OwnChroot, Scenario

BAD_ARGUMENTS = -8


class ZnodesContract:
    """Base class of contract tests; a subclass per server."""

    def run(self, scenario: Scenario) -> None:
        """Run a scenario below its own chroot."""
        raise NotImplementedError

    # ---- znodes ---------------------------------------------------------------------

    def test_written_znodes_are_read(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                for path in ("/p", "/p/b", "/p/a", "/p/a/deep"):
                    await zk.create(path)
                assert await zk.children("/p") == ("a", "b")
                stat = await zk.exists("/p")
                deep = await zk.exists("/p/a/deep")
                assert stat is not None
                assert deep is not None
                assert (stat.num_children, stat.cversion, stat.version) == (2, 2, 0)
                # A grandchild does not change the parent's stat.
                assert stat.czxid < stat.pzxid < deep.czxid
                await zk.delete("/p/b")
                stat = await zk.exists("/p")
                assert stat is not None
                assert (stat.num_children, stat.cversion) == (1, 3)

        self.run(scenario)

    def test_versions_guard_writes(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                await zk.create("/a")
                await zk.set("/a", b"x", version=0)
                with pytest.raises(BadVersion, match="/a"):
                    await zk.set("/a", b"y", version=0)
                with pytest.raises(BadVersion):
                    await zk.delete("/a", version=0)
                await zk.delete("/a", version=1)

        self.run(scenario)

    def test_impossible_operations_are_reported_by_name(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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
                # The version is checked first.
                with pytest.raises(BadVersion):
                    await zk.delete("/a", version=9)

        self.run(scenario)

    @pytest.mark.parametrize("path", ["/a/", "/a\x01", "/a/.", "/a/..", "/\ue000"])
    def test_paths_have_a_form(self, path: str) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                await zk.create("/a")
                with pytest.raises(OtherError) as raised:
                    await zk.create(path)
                assert raised.value.code == BAD_ARGUMENTS

        self.run(scenario)

    def test_sequential_names_grow_and_none_is_given_twice(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                await zk.create("/q")
                first = await zk.create("/q/n", sequential=True)
                second = await zk.create("/q/n", sequential=True, ephemeral=True)
                assert (first, second) == ("/q/n0000000000", "/q/n0000000001")
                await zk.delete(second)
                assert await zk.create("/q/m", sequential=True) == "/q/m0000000002"
                assert await zk.create("/q/", sequential=True) == "/q/0000000003"

        self.run(scenario)

    def test_data_may_be_as_large_as_a_frame_allows(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                large = bytes(REQUEST_BYTES_MAX - 200)
                await zk.create("/large", large)
                assert (await zk.get("/large")).data == large
                with pytest.raises(OtherError) as raised:
                    await zk.set("/large", bytes(REQUEST_BYTES_MAX))
                assert raised.value.code == BAD_ARGUMENTS

        self.run(scenario)

    def test_calls_made_side_by_side_are_carried_out_in_order(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
                await zk.create("/a")
                stats = {}

                async def write(number: int) -> None:
                    stats[number] = await zk.set("/a", b"%d" % number)

                async with trio.open_nursery() as nursery:
                    for number in range(100):
                        nursery.start_soon(write, number)
                order = sorted(stats, key=lambda number: stats[number].version)
                # Trio starts tasks in any order; versions follow the calls' order.
                data, stat = await zk.get("/a")
                assert stat.version == 100
                assert data == b"%d" % order[-1]
                assert [stats[n].version for n in order] == list(range(1, 101))

        self.run(scenario)

    # ---- multi ----------------------------------------------------------------------

    def test_a_multi_does_everything_in_one_transaction(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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
                assert isinstance(stat, Stat)
                assert new.czxid == other.czxid == stat.mzxid
                assert new.ephemeral_owner == zk.session_id
                assert await zk.exists("/old") is None

        self.run(scenario)

    def test_a_multi_that_fails_does_nothing_and_names_the_operation(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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
                assert (await zk.get("/a")).data == b"old"
                assert await zk.exists("/") == before
                with pytest.raises(NodeExists) as exists:
                    await zk.multi([Create("/a"), Create("/a")])
                assert exists.value.op == 0
                assert await zk.multi([]) == ()

        self.run(scenario)

    def test_a_multi_sees_what_it_has_done_so_far(self) -> None:
        async def scenario(chroot: OwnChroot) -> None:
            async with chroot.open() as zk:
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
