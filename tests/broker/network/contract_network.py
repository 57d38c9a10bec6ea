"""Contract of every network, tested at the interface `broker.network.transport`."""

import contextlib

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.network.transport import BROKEN, PEER_FINISHED, READABLE, WRITABLE


class Region:
    """A file region backed by a real file, as the log returns it."""

    def __init__(self, file, position, size):
        self.file, self.position, self.size = file, position, size

    def fileno(self):
        return self.file.fileno()

    def read(self):
        self.file.seek(self.position)
        return self.file.read(self.size)


class NetworkContract:
    """Base class of contract tests; a subclass provides the fixture ``wire``.

    ``harness`` describes a wire. Every test takes ``clock`` because pytest-trio looks
    for a run's clock there; a network in real time provides None.
    """

    @pytest.fixture
    def clock(self):
        return MockClock(autojump_threshold=0)

    @pytest.fixture
    async def ends(self, wire):
        """Yield a client's stream, the server's connection and its selector."""
        listener = wire.network.listen("127.0.0.1", 0)
        selector = wire.network.selector()
        stream = await wire.dial(listener.port)
        connection, address = await listener.accept()
        assert address == "127.0.0.1"
        selector.register(connection)
        yield stream, connection, selector
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.aclose()
        connection.close()
        selector.close()
        listener.close()

    @staticmethod
    async def events(selector, connection, wanted):
        """Poll until one of the ``wanted`` bits is set; return all bits received."""
        seen = 0
        while not seen & wanted:
            for fileno, bits in selector.poll():
                if fileno == connection.fileno():
                    seen |= bits
            if not seen & wanted:
                await selector.wait()
        return seen

    async def test_a_new_connection_is_reported_writable_and_not_readable(
        self, clock, ends
    ):
        _, connection, selector = ends
        assert await self.events(selector, connection, WRITABLE) == WRITABLE
        with pytest.raises(BlockingIOError):
            connection.recv(10)

    async def test_readiness_is_reported_once_per_arrival(self, clock, ends):
        stream, connection, selector = ends
        await stream.send_all(b"first")
        await self.events(selector, connection, READABLE)
        assert connection.fileno() not in dict(selector.poll())
        await stream.send_all(b"second")
        await self.events(selector, connection, READABLE)
        assert connection.recv(100) == b"firstsecond"
        with pytest.raises(BlockingIOError):
            connection.recv(1)

    async def test_bytes_are_received_into_a_buffer(self, clock, ends):
        stream, connection, selector = ends
        await stream.send_all(b"abcdef")
        await self.events(selector, connection, READABLE)
        buffer = bytearray(4)
        assert connection.recv_into(memoryview(buffer)) == 4
        assert buffer == b"abcd"
        assert connection.recv(10) == b"ef"

    async def test_a_peer_that_finished_is_reported_and_then_read_to_the_end(
        self, clock, ends
    ):
        stream, connection, selector = ends
        await stream.send_all(b"last")
        await stream.send_eof()
        await self.events(selector, connection, PEER_FINISHED)
        assert connection.recv(100) == b"last"
        assert connection.recv(100) == b""
        connection.send(b"still heard")
        assert await stream.receive_some(100) == b"still heard"

    async def test_a_full_buffer_pushes_back_until_the_peer_reads(self, clock, ends):
        stream, connection, selector = ends
        await self.events(selector, connection, WRITABLE)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 1 << 30:
                sent += connection.send(bytes(50_000))
        assert sent < 1 << 30
        received = 0
        while received < sent:
            received += len(await stream.receive_some(100_000))
        assert await self.events(selector, connection, WRITABLE) & WRITABLE
        assert connection.send(b"more") == 4

    async def test_pieces_go_out_in_order(self, clock, ends):
        stream, connection, selector = ends
        pieces = [b"a" * 10, memoryview(b"b" * 20), b"", b"c" * 30]
        assert selector.send_many(connection, pieces, False) == 60
        received = b""
        while len(received) < 60:
            received += await stream.receive_some(100)
        assert received == b"a" * 10 + b"b" * 20 + b"c" * 30

    async def test_a_file_region_is_sent_from_its_position(self, clock, ends, tmp_path):
        stream, connection, selector = ends
        path = tmp_path / "log"
        path.write_bytes(b"0123456789")
        with path.open("rb") as file:
            region = Region(file, 3, 5)
            assert selector.send_many(connection, [b"<"], True) == 1
            assert selector.send_file(connection, region, 1, 4) == 4
            assert selector.send_many(connection, [b">"], False) == 1
        received = b""
        while len(received) < 6:
            received += await stream.receive_some(100)
        assert received == b"<4567>"

    async def test_a_region_beyond_the_end_of_its_file_sends_nothing(
        self, clock, ends, tmp_path
    ):
        _, connection, selector = ends
        path = tmp_path / "log"
        path.write_bytes(b"0123")
        with path.open("rb") as file:
            assert selector.send_file(connection, Region(file, 4, 5), 0, 5) == 0

    async def test_wakeup_ends_the_present_wait_and_else_the_next(
        self, clock, ends, nursery
    ):
        _, connection, selector = ends
        await self.events(selector, connection, WRITABLE)
        selector.wakeup()
        await selector.wait()
        selector.poll()
        returned = trio.Event()

        async def wait():
            await selector.wait()
            returned.set()

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not returned.is_set()
        selector.wakeup()
        await returned.wait()

    async def test_a_poll_out_of_turn_leaves_a_wakeup_to_whoever_waits(
        self, clock, ends, nursery
    ):
        _, connection, selector = ends
        await self.events(selector, connection, WRITABLE)
        returned = trio.Event()

        async def wait():
            await selector.wait()
            returned.set()

        for _ in range(3):
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            selector.wakeup()
            selector.poll()
            selector.poll()
            with trio.fail_after(5):
                await returned.wait()
            returned = trio.Event()

    async def test_a_reset_is_reported_as_broken(self, clock, wire, ends):
        stream, connection, selector = ends
        await wire.reset(stream)
        await self.events(selector, connection, BROKEN)
        with pytest.raises(ConnectionResetError):
            connection.recv(10)
        with pytest.raises(OSError, match=r".+") as error:
            connection.send(b"in vain")
        assert not isinstance(error.value, BlockingIOError)

    async def test_nothing_is_reported_of_who_is_unregistered(self, clock, ends):
        stream, connection, selector = ends
        await self.events(selector, connection, WRITABLE)
        selector.unregister(connection)
        await stream.send_all(b"unheard")
        selector.wakeup()
        await selector.wait()
        assert connection.fileno() not in dict(selector.poll())

    async def test_bytes_taken_before_close_arrive(self, clock, ends):
        stream, connection, selector = ends
        connection.send(b"farewell")
        selector.unregister(connection)
        connection.close()
        assert await stream.receive_some(100) == b"farewell"
        assert await stream.receive_some(100) == b""

    async def test_somebody_who_waits_already_is_accepted_at_a_checkpoint(
        self, clock, wire
    ):
        """A cancelled ``accept`` loses no connection; each call yields to Trio."""
        listener = wire.network.listen("127.0.0.1", 0)
        stream = await wire.dial(listener.port)
        with trio.CancelScope() as ended:
            ended.cancel()
            await listener.accept()
        assert ended.cancelled_caught
        connection, _ = await listener.accept()
        for each in (connection, listener):
            each.close()
        await stream.aclose()

    async def test_a_port_is_bound_once(self, clock, wire):
        network = wire.network
        listener = network.listen("127.0.0.1", 0)
        assert listener.port > 0
        with pytest.raises(OSError, match=r".+"):
            network.listen("127.0.0.1", listener.port)
        listener.close()
        network.listen("127.0.0.1", listener.port).close()
