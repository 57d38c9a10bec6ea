"""The network contract, for real sockets and for the in-memory network."""

import pytest
import trio

from tests.broker.network.contract_network import NetworkContract
from tests.broker.network.harness import TcpWire
from tests.virtual.hosting import MemoryWire


@pytest.mark.live
class TestTcpNetwork(NetworkContract):
    @pytest.fixture
    def clock(self):
        return None

    @pytest.fixture
    def wire(self):
        return TcpWire()

    async def test_an_empty_host_listens_to_both_families(self, wire):
        listener = wire.network.listen("", 0)
        for host in ("127.0.0.1", "::1"):
            stream = await trio.open_tcp_stream(host, listener.port)
            connection, address = await listener.accept()
            assert address == host
            connection.close()
            await stream.aclose()
        listener.close()

    async def test_a_connection_lost_in_the_backlog_harms_no_other(self, wire):
        listener = wire.network.listen("127.0.0.1", 0)
        await wire.reset(await wire.dial(listener.port))
        stream = await wire.dial(listener.port)
        lost, _ = await listener.accept()
        connection, _ = await listener.accept()
        with pytest.raises(ConnectionResetError):
            lost.recv(10)
        await stream.send_all(b"here")
        await trio.lowlevel.wait_readable(connection)
        assert connection.recv(10) == b"here"
        for each in (lost, connection, listener):
            each.close()
        await stream.aclose()


class TestMemoryNetwork(NetworkContract):
    @pytest.fixture
    def wire(self):
        return MemoryWire()

    async def test_a_port_without_a_listener_refuses_connections(self, wire):
        with pytest.raises(ConnectionRefusedError):
            await wire.dial(1)


class TestMemoryNetworkWithLatency(NetworkContract):
    @pytest.fixture
    async def wire(self, nursery):
        wire = MemoryWire(latency_ns=(10_000, 3_000_000))
        await nursery.start(wire.network.run)
        return wire

    async def test_bytes_arrive_late_within_the_bounds_and_in_order(
        self, clock, wire, ends
    ):
        stream, connection, selector = ends
        delays_ns = set()
        for number in range(50):
            began_ns = wire.now_ns()
            await stream.send_all(b"%04d" % number)
            await self.events(selector, connection, 1)
            assert connection.recv(100) == b"%04d" % number
            delays_ns.add(wire.now_ns() - began_ns)
        assert 10_000 <= min(delays_ns) < max(delays_ns) <= 3_000_000
        assert len(delays_ns) > 25

    async def test_chunks_do_not_overtake_one_another(self, clock, wire, ends):
        stream, connection, selector = ends
        sent = b"".join(b"%04d" % number for number in range(100))
        for at in range(0, len(sent), 4):
            await stream.send_all(sent[at : at + 4])
        received = b""
        while len(received) < len(sent):
            await self.events(selector, connection, 1)
            received += connection.recv(1000)
        assert received == sent
