"""A ZooKeeper server with a journal: responses wait; sessions survive the process."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
import trio.testing

from broker.disk.memory import MemoryStorage
from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.in_memory.zookeeper_journal import Journal
from broker.zookeeper.in_memory.zookeeper_server import ZooKeeperServer
from broker.zookeeper.jute import framed, packed_int, packed_text
from broker.zookeeper.znodes import EventKind, SessionEvent, WatchEvent
from broker.zookeeper.zookeeper_messages import OpCode, connect_request
from simulation.virtual_time.memory_zookeeper import memory_zookeeper
from tests.broker.zookeeper.zoo import TIMEOUT_MS, Zoo, heard, with_zoo

PORT = 2999


class Life:
    """One process on a disk; its syncs wait while ``gate`` is closed."""

    def __init__(self, zoo: Zoo, storage: MemoryStorage) -> None:
        self.zoo = zoo
        self.storage = storage
        self.gate = trio.Event()
        self.gate.set()
        service = ZooKeeperService(
            now_ns=zoo.clock.now_ns,
            rng=random.Random(2),
            start_ms=0,
            journal=Journal(storage, "zookeeper"),
        )
        self._scope = trio.CancelScope()
        self.server: ZooKeeperServer = memory_zookeeper(
            service, zoo.network, PORT, call=self._sync
        )

    async def _sync(self, sync: Callable[[], None]) -> None:
        await self.gate.wait()
        sync()

    async def start(self) -> None:
        async def serve(task_status: trio.TaskStatus[None]) -> None:
            with self._scope:
                await self.server.run(task_status)

        await self.zoo.nursery.start(serve)

    async def killed(self) -> MemoryStorage:
        """Kill the process; return the disk that the next process finds."""
        self._scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        return self.storage.after_kill()


def test_an_answer_waits_until_what_it_shows_is_on_disk() -> None:
    async def scenario(zoo: Zoo) -> None:
        life = Life(zoo, MemoryStorage())
        await life.start()
        zk, other = [await zoo.opened(f"zoo:{PORT}") for _ in range(2)]
        await zk.create("/a")
        await other.get("/a", watch=True)
        heard(other)
        life.gate = trio.Event()
        done = []

        async def write() -> None:
            done.append(await zk.set("/a", b"new"))

        async def read() -> None:
            done.append(await other.get("/a"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(0.1)
            # The response would reveal the write, and so would the watch event.
            nursery.start_soon(read)
            await trio.sleep(0.1)
            assert done == heard(other) == []
            life.gate.set()
        assert len(done) == 2
        assert heard(other) == [WatchEvent(EventKind.DATA_CHANGED, "/a")]

    with_zoo(scenario)


def test_sessions_outlive_the_process() -> None:
    async def scenario(zoo: Zoo) -> None:
        life = Life(zoo, MemoryStorage())
        await life.start()
        gone, zk = [await zoo.opened(f"zoo:{PORT}") for _ in range(2)]
        await zk.create("/mine", ephemeral=True)
        await gone.create("/its", ephemeral=True)
        await zk.exists("/its", watch=True)
        before = zk.session_id
        heard(zk)
        life = Life(zoo, await life.killed())
        # The server is down for longer than the session time-out.
        await trio.sleep(2 * TIMEOUT_MS / 1000)
        await life.start()
        assert await zk.children("/") == ("its", "mine")
        assert zk.session_id == before
        assert heard(zk) == [SessionEvent.DISCONNECTED, SessionEvent.CONNECTED]
        # A session expires for good when its client does not return.
        zoo.unreachable.add(PORT)
        zoo.cut_all()
        life = Life(zoo, await life.killed())
        await life.start()
        zoo.unreachable.clear()
        await trio.sleep(1)
        assert zk.session_id == before
        assert await zk.exists("/mine") is not None
        await gone.close()
        assert await zk.exists("/its") is None
        life = Life(zoo, await life.killed())
        await life.start()
        assert await zk.children("/") == ("mine",)

    with_zoo(scenario)


class DeafClient:
    """A client that reads a large znode repeatedly and never receives a response."""

    def __init__(self) -> None:
        self.asked = -1
        self._accepted = False

    async def accept(self) -> DeafClient:
        if self._accepted:
            await trio.sleep_forever()
        self._accepted = True
        return self

    async def receive_some(self) -> bytes:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.asked == 0:
            return framed(connect_request(0, 60_000, 0, bytes(16)))
        body = packed_text("/large") + b"\x00"
        return framed(packed_int(self.asked) + packed_int(OpCode.GET_DATA) + body)

    async def send_all(self, data: bytes) -> None:
        await trio.sleep_forever()

    def close(self) -> None: ...

    def abort(self) -> None: ...


def test_a_client_that_reads_nothing_is_not_answered_without_end() -> None:
    async def scenario(zoo: Zoo) -> None:
        zk = await zoo.opened("zoo:2181")
        await zk.create("/large", bytes(1 << 19))
        client = DeafClient()
        server = ZooKeeperServer(zoo.service, lambda: client)
        await zoo.nursery.start(server.run)
        await trio.sleep(1)
        # With headers, eight responses of 512 KiB exceed the limit of 4 MiB.
        assert client.asked == 8

    with_zoo(scenario)


def test_a_connection_without_a_first_message_is_closed() -> None:
    async def scenario(zoo: Zoo) -> None:
        stream = await zoo.connect("zoo", 2181)
        began_s = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        assert 10 <= trio.current_time() - began_s < 11

    with_zoo(scenario)
