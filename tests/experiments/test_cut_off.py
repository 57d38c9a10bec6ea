"""A broker's connections to others, cut off and restored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from broker.client.connection import Stream
from experiments.processes.cut_off import Links

HOST, PORT, OTHER = "127.0.0.1", 9001, 9002


class Far:
    """The remote ends of all connections, the newest last."""

    def __init__(self) -> None:
        self.ends: list[trio.StapledStream[Any, Any]] = []

    async def connect(self, host: str, port: int) -> Stream:
        assert host == HOST
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        self.ends.append(theirs)
        return ours


@pytest.fixture
def far() -> Far:
    return Far()


@pytest.fixture
def links(far: Far) -> Links:
    return Links(far.connect)


async def waits(act: Callable[[], Awaitable[object]]) -> bool:
    """Return whether a call is still blocked when all other tasks are."""
    with trio.move_on_after(1) as scope:
        await act()
    return scope.cancelled_caught


async def test_bytes_sent_while_cut_off_arrive_afterwards(
    far: Far, links: Links, autojump_clock: trio.testing.MockClock
) -> None:
    stream = await links.connect(HOST, PORT)
    await stream.send_all(b"before ")
    links.obey(f"silent {PORT}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, b"in between")
        assert await far.ends[0].receive_some() == b"before "
        assert await waits(far.ends[0].receive_some)
        links.obey(f"restored {PORT}")
        assert await far.ends[0].receive_some() == b"in between"


async def test_bytes_received_while_cut_off_survive_a_cancelled_read(
    far: Far, links: Links, autojump_clock: trio.testing.MockClock
) -> None:
    stream = await links.connect(HOST, PORT)
    links.obey(f"silent {PORT} {OTHER}")
    await far.ends[0].send_all(b"one")
    assert await waits(stream.receive_some)
    await far.ends[0].send_all(b"two")
    assert await waits(stream.receive_some)
    links.obey(f"restored {PORT}")
    assert await stream.receive_some() == b"one"
    assert await stream.receive_some() == b"two"


async def test_the_end_of_a_stream_is_not_seen_while_cut_off(
    far: Far, links: Links, autojump_clock: trio.testing.MockClock
) -> None:
    stream = await links.connect(HOST, PORT)
    links.obey(f"silent {PORT}")
    await far.ends[0].aclose()
    assert await waits(stream.receive_some)
    links.obey(f"restored {PORT}")
    assert await stream.receive_some() == b""


class Reset:
    """A connection that the remote side has reset."""

    async def send_all(self, data: bytes) -> None:
        raise trio.BrokenResourceError

    async def receive_some(self) -> bytes:
        raise trio.BrokenResourceError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_broken_connection_is_not_seen_while_cut_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def connect(host: str, port: int) -> Stream:
        await trio.lowlevel.checkpoint()
        return Reset()

    links = Links(connect)
    stream = await links.connect(HOST, PORT)
    links.obey(f"silent {PORT}")
    assert await waits(stream.receive_some)
    assert await waits(lambda: stream.send_all(b"more"))
    links.obey(f"restored {PORT}")
    with pytest.raises(trio.BrokenResourceError):
        await stream.receive_some()


async def test_a_connection_attempt_while_cut_off_is_not_answered(
    far: Far, links: Links, autojump_clock: trio.testing.MockClock
) -> None:
    links.obey(f"silent {PORT}")
    assert await waits(lambda: links.connect(HOST, PORT))
    assert not far.ends
    await links.connect(HOST, OTHER)
    links.obey(f"restored {PORT}")
    await links.connect(HOST, PORT)
    assert len(far.ends) == 2


@pytest.mark.parametrize("line", ["quiet 9001", "silent port"])
async def test_other_lines_are_an_error(links: Links, line: str) -> None:
    with pytest.raises(ValueError, match=r"port|quiet"):
        links.obey(line)
