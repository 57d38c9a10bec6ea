"""The socket server's contract over TCP, TLS and in memory, and its own limits."""

import struct

import pytest
import trio
import trio.testing

from broker.network import acceptor
from broker.network.connection_quotas import ConnectionLimits
from broker.network.memory_pool import MemoryPool
from broker.network.transport import READY_MAX
from broker.quotas.address_rates import AddressRates
from simulation.virtual_time.determinism import deterministic
from tests.broker.network.contract_network import Region
from tests.broker.network.contract_server import ServerContract
from tests.broker.network.harness import Harness, TcpWire, echo
from tests.broker.network.tls_wire import TlsWire
from tests.virtual.hosting import MemoryWire, frame


@pytest.mark.live
class TestOverTcp(ServerContract):
    @pytest.fixture
    def clock(self):
        return None

    @pytest.fixture
    def wire(self):
        return TcpWire()


class TestWithTls(ServerContract):
    @pytest.fixture
    def wire(self):
        return TlsWire()


class TestInMemory(ServerContract):
    @pytest.fixture
    def wire(self):
        return MemoryWire()

    async def test_an_address_may_have_a_bound_of_its_own(self, clock, wire):
        limits = ConnectionLimits(per_address=0, per_address_overrides={"10.0.0.9": 1})
        harness = Harness(wire.network, wire.now_ns, limits=limits)
        async with harness.running():
            assert await (await harness.client(wire)).is_closed()
            client = await harness.client(wire, address="10.0.0.9")
            assert await client.ask() == (1, b"")

    async def test_an_address_that_connects_too_fast_is_closed_after_a_delay(
        self, clock, wire
    ):
        """An address with 100 connections per second for a minute gets its quota only.

        The excess is closed unread and counts in no rate. Another address is accepted.
        """
        rates = AddressRates()
        rates.put("ips/10.0.0.9", {"connection_creation_rate": "1"})
        harness = Harness(wire.network, wire.now_ns, address_rates=rates)
        answered, closed_after_s = [], []

        async def attempt():
            begun_s = trio.current_time()
            client = await harness.client(wire, address="10.0.0.9")
            if await client.ask() is None:
                closed_after_s.append(trio.current_time() - begun_s)
            else:
                answered.append(begun_s)

        async with harness.running():
            async with trio.open_nursery() as attempts:
                for _ in range(6000):
                    attempts.start_soon(attempt)
                    await trio.sleep(0.01)
            # A burst of ten connections, then one per second.
            assert 60 <= len(answered) <= 71
            assert harness.quotas.total == len(answered)
            assert max(closed_after_s) <= 1.001
            assert sum(closed_after_s) / len(closed_after_s) > 0.1
            assert await (await harness.client(wire)).ask() == (1, b"")

    async def test_few_connections_of_a_fast_address_are_kept_open(
        self, clock, wire, monkeypatch
    ):
        monkeypatch.setattr(acceptor, "_DELAYED_MAX", 3)
        rates = AddressRates()
        rates.put("ips/<default>", {"connection_creation_rate": "0"})
        harness = Harness(wire.network, wire.now_ns, address_rates=rates)
        async with harness.running():
            closed_after_s = []
            for _ in range(5):
                client = await harness.client(wire)
                with trio.move_on_after(0.5) as scope:
                    assert await client.is_closed()
                closed_after_s.append(scope.cancelled_caught)
                clock.jump(0)
            # A client waits for half a second; a place becomes free after one second.
            assert closed_after_s == [True] * 5
            more = [await harness.client(wire) for _ in range(5)]
            begun_s = trio.current_time()
            assert await more[-1].is_closed()
            assert trio.current_time() == begun_s

    async def test_a_listener_may_have_a_bound_of_its_own(self, clock, wire):
        limits = ConnectionLimits(per_listener={"SMALL": 1})
        harness = Harness(
            wire.network, wire.now_ns, limits=limits, listeners=("PLAINTEXT", "SMALL")
        )
        async with harness.running():
            small = await harness.client(wire, "SMALL")
            assert await small.ask() == (1, b"")
            waiting = await harness.client(wire, "SMALL")
            await waiting.send(b"")
            for _ in range(3):
                assert await (await harness.client(wire)).ask() == (1, b"")
            assert harness.connections == [3, 1]

    async def test_a_large_request_and_its_answer_take_several_turns(
        self, clock, tmp_path
    ):
        # Buffers larger than a connection may transfer in one turn.
        wire = MemoryWire(buffer_bytes=16 << 20)
        body = bytes(range(256)) * (20 << 10)
        path = tmp_path / "log"
        path.write_bytes(body)
        with path.open("rb") as file:

            async def from_the_file(request):
                assert request.frame[request.body_offset :] == body
                head = struct.pack(">ii", 4 + len(body), request.correlation_id)
                return (head, Region(file, 0, len(body)))

            harness = Harness(
                wire.network, wire.now_ns, from_the_file, frame_bytes_max=8 << 20
            )
            async with harness.running():
                client = await harness.client(wire)
                for number in range(2):
                    answer = await client.ask(body, correlation_id=number)
                    assert answer == (number, body)

    async def test_memory_that_one_processor_gives_back_lets_another_read(
        self, clock, wire
    ):
        entered, leave = trio.Event(), trio.Event()

        async def held(request):
            if request.correlation_id == 7:
                entered.set()
                await leave.wait()
            return await echo(request)

        pool = MemoryPool(100)
        harness = Harness(wire.network, wire.now_ns, held, processors=2, pool=pool)
        async with harness.running():
            first, second = await harness.client(wire), await harness.client(wire)
            await first.send(frame(bytes(500), correlation_id=7))
            await entered.wait()
            await second.send(frame(b"short of memory"))
            await trio.testing.wait_all_tasks_blocked()
            assert [request.correlation_id for request in harness.finished] == []
            leave.set()
            assert await second.answer() == (1, b"short of memory")
            assert await first.answer() == (7, bytes(500))

    async def test_an_idle_connection_is_closed_and_a_busy_one_is_kept(
        self, clock, wire
    ):
        harness = Harness(wire.network, wire.now_ns, idle_ns_max=10_000_000_000)
        async with harness.running():
            idle = await harness.client(wire)
            busy = await harness.client(wire)
            for _ in range(6):
                await trio.sleep(2)
                assert await busy.ask() == (1, b"")
            assert harness.connections == [1]
            assert await idle.is_closed()
            assert harness.server.processors[0].expired_connections == 1

    async def test_all_idle_connections_are_closed(self, clock, wire):
        harness = Harness(wire.network, wire.now_ns, idle_ns_max=10_000_000_000)
        async with harness.running():
            idle = [await harness.client(wire) for _ in range(2 * READY_MAX + 20)]
            await trio.sleep(12)
            assert harness.connections == [0]
            for client in idle:
                assert await client.is_closed()

    async def test_an_acceptor_waits_while_every_processor_is_blocked(
        self, clock, wire
    ):
        entered, leave = trio.Event(), trio.Event()

        async def held(request):
            entered.set()
            await leave.wait()
            return (b"\0\0\0\4" + request.correlation_id.to_bytes(4, "big"),)

        # Four are served, one is queued, and the processor blocks on the sixth.
        harness = Harness(wire.network, wire.now_ns, held, capacity=1)
        async with harness.running():
            first = [await harness.client(wire) for _ in range(6)]
            async with trio.open_nursery() as nursery:
                for client in first:
                    nursery.start_soon(client.ask)
                await entered.wait()
                await trio.testing.wait_all_tasks_blocked()
                later = [await harness.client(wire) for _ in range(40)]
                await trio.testing.wait_all_tasks_blocked()
                # The processor's queue holds twenty connections, and the acceptor one.
                assert harness.connections == [6]
                assert harness.quotas.total == 6 + 20 + 1
                leave.set()
            for client in later:
                assert await client.ask(correlation_id=9) == (9, b"")
            assert harness.connections == [46]

    async def test_connections_before_the_start_are_numbered_by_the_order_of_listeners(
        self, clock, wire
    ):
        """A run must not depend on the order in which Trio runs its tasks."""
        for seed in range(8):
            numbers = {}

            async def serve(request, numbers=numbers):
                numbers[request.peer.listener] = request.peer.connection_id
                return await echo(request)

            harness = Harness(wire.network, wire.now_ns, serve, listeners="ABC")
            clients = [await harness.client(wire, listener) for listener in "CBA"]
            with deterministic(seed):
                async with harness.running():
                    for client in clients:
                        await client.ask()
            assert sorted(numbers, key=numbers.__getitem__) == ["A", "B", "C"]

    async def test_a_processor_without_connections_has_waited_since_it_began(
        self, clock, wire
    ):
        harness = Harness(wire.network, wire.now_ns)
        async with harness.running():
            (processor,) = harness.server.processors
            await trio.testing.wait_all_tasks_blocked()
            assert processor.idle_ns(wire.now_ns()) == 0
            await trio.sleep(0.5)
            assert processor.idle_ns(wire.now_ns()) == 500_000_000

    async def test_sockets_are_looked_at_out_of_turn_and_a_full_queue_still_blocks(
        self, clock, wire
    ):
        harness = Harness(wire.network, wire.now_ns, capacity=2)
        async with harness.running():
            processor = harness.server.processors[0]
            clients = [await harness.client(wire) for _ in range(4)]
            await trio.testing.wait_all_tasks_blocked()
            for number, client in enumerate(clients):
                client.stream.connection.send(frame(correlation_id=number))
            processor.poll()
            # Two requests were queued and the third found no room; no other task ran.
            assert harness.plane.queued == 2
            assert processor.idle_ns(wire.now_ns()) == processor.idle_ns(
                wire.now_ns() + 1_000
            )
            processor.poll()
            assert harness.plane.queued == 2
            for number, client in enumerate(clients):
                assert await client.answer() == (number, b"")
        processor.poll()
        assert harness.connections == [0]


class TestInMemoryWithLatency(ServerContract):
    @pytest.fixture
    async def wire(self, nursery):
        wire = MemoryWire(latency_ns=(10_000, 1_000_000), buffer_bytes=10_000)
        await nursery.start(wire.network.run)
        return wire
