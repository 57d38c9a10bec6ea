"""Contract of the socket server over any network, also with misbehaving peers."""

import struct

import pytest
import trio
from trio.testing import MockClock

from broker.network.connection_quotas import ConnectionLimits
from broker.network.memory_pool import MemoryPool
from broker.network.transport import READY_MAX
from broker.requests.request import CLOSE, NO_RESPONSE, Throttled
from tests.broker.network.contract_network import Region
from tests.broker.network.harness import (
    LEADER_AND_ISR,
    PRODUCE,
    Harness,
    echo,
)
from tests.virtual.hosting import frame

HOSTILE = {
    "a negative size": struct.pack(">i", -1),
    "a size above the bound": struct.pack(">i", (1 << 20) + 1),
    "the largest size there is": struct.pack(">i", 2**31 - 1),
    "an empty frame": struct.pack(">i", 0),
    "a header cut short": struct.pack(">ihh", 4, 3, 1),
    "a client id beyond the frame": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "a client id that is not text": struct.pack(">ihhih", 12, 3, 1, 1, 2) + b"\xff\xfe",
    "an unknown api key": frame(api_key=999),
    "a negative api key": frame(api_key=-5),
    "an api that is not served": frame(api_key=1, version=4),
    "a version too high": frame(version=77),
    "a version too low": frame(api_key=PRODUCE, version=2),
    "another protocol": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
}


class ServerContract:
    """Base class of contract tests; fixtures as in ``NetworkContract``."""

    @pytest.fixture
    def clock(self):
        return MockClock(autojump_threshold=0)

    async def test_requests_are_answered(self, clock, wire):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            client = await harness.client(wire)
            assert await client.ask(b"hello", correlation_id=7) == (7, b"hello")
            assert await client.ask(b"", correlation_id=8) == (8, b"")

    async def test_a_frame_may_come_byte_by_byte(self, clock, wire):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            client = await harness.client(wire)
            for byte in frame(b"slowly"):
                await client.send(bytes([byte]))
            assert await client.answer() == (1, b"slowly")

    async def test_pipelined_requests_are_in_the_broker_one_at_a_time(
        self, clock, wire
    ):
        inside = []

        async def one_at_a_time(request):
            inside.append(request.correlation_id)
            assert len(inside) == 1
            await trio.lowlevel.checkpoint()
            inside.remove(request.correlation_id)
            return await echo(request)

        harness = Harness(wire.network, wire.now_ns, one_at_a_time)
        async with harness.running():
            client = await harness.client(wire)
            sent = b"".join(frame(b"x" * n, correlation_id=n) for n in range(200))
            await client.send(sent)
            for number in range(200):
                assert await client.answer() == (number, b"x" * number)

    @pytest.mark.parametrize("size", [65_519, 65_520, 65_536, 100_000, 1 << 19])
    async def test_large_requests_and_answers_come_whole(self, clock, wire, size):
        body = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
        async with Harness(wire.network, wire.now_ns).running() as harness:
            client = await harness.client(wire)
            async with trio.open_nursery() as nursery:
                # Two requests in one write: the second directly follows the first.
                nursery.start_soon(client.send, frame(body) + frame(b"next"))
                assert await client.answer() == (1, body)
                assert await client.answer() == (1, b"next")

    async def test_a_request_without_answer_lets_the_next_one_in(self, clock, wire):
        async def silent(request):
            return NO_RESPONSE if request.api_key == PRODUCE else await echo(request)

        async with Harness(wire.network, wire.now_ns, silent).running() as harness:
            client = await harness.client(wire)
            quiet = frame(b"quiet", api_key=PRODUCE, version=8)
            await client.send(quiet + quiet + frame(b"loud"))
            assert await client.answer() == (1, b"loud")
            assert len(harness.finished) >= 2

    async def test_an_answer_may_come_in_pieces_of_memory_and_of_files(
        self, clock, wire, tmp_path
    ):
        path = tmp_path / "log"
        path.write_bytes(bytes(range(256)) * 4000)
        with path.open("rb") as file:

            async def in_pieces(request):
                region = Region(file, 100, 900_000)
                head = struct.pack(">ii", 4 + 2 + region.size, request.correlation_id)
                return (head, memoryview(b"<"), region, b">")

            harness = Harness(wire.network, wire.now_ns, in_pieces)
            async with harness.running():
                client = await harness.client(wire)
                for number in range(3):
                    correlation_id, body = await client.ask(correlation_id=number)
                    assert correlation_id == number
                    assert body == b"<" + path.read_bytes()[100:900_100] + b">"

    async def test_a_handler_may_close_the_connection(self, clock, wire):
        async def close(request):
            return CLOSE

        async with Harness(wire.network, wire.now_ns, close).running() as harness:
            client = await harness.client(wire)
            await client.send(frame())
            assert await client.is_closed()
            assert [each.correlation_id for each in harness.finished] == [1]

    async def test_a_throttled_client_is_answered_at_once_and_read_later(
        self, clock, wire
    ):
        async def throttled(request):
            return Throttled(pieces=await echo(request), throttle_ns=20_000_000)

        async with Harness(wire.network, wire.now_ns, throttled).running() as harness:
            client = await harness.client(wire)
            await client.send(frame(b"first") + frame(b"second"))
            assert await client.answer() == (1, b"first")
            assert await client.answer() == (1, b"second")
        first, second = harness.finished
        assert first.task.response_sent_ns - first.task.received_ns < 15_000_000
        assert second.task.received_ns - first.task.response_dequeued_ns >= 20_000_000

    async def test_more_connections_than_a_round_serves_are_served(self, clock, wire):
        harness = Harness(wire.network, wire.now_ns)
        async with harness.running():
            clients = []
            for _ in range(READY_MAX + 20):
                client = await harness.client(wire)
                assert await client.ask() == (1, b"")
                clients.append(client)
            for client in clients:
                await client.send(frame(b"at once"))
            for client in clients:
                assert await client.answer() == (1, b"at once")

    async def test_connections_are_dealt_in_turn(self, clock, wire):
        harness = Harness(wire.network, wire.now_ns, processors=3)
        async with harness.running():
            clients = [await harness.client(wire) for _ in range(7)]
            for client in clients:
                await client.ask(b"here")
            assert harness.connections == [3, 2, 2]

    # ---- peers that misbehave -----------------------------------------------------

    @pytest.mark.parametrize("bytes_sent", HOSTILE.values(), ids=HOSTILE.keys())
    async def test_a_hostile_frame_costs_its_sender_the_connection_only(
        self, clock, wire, bytes_sent
    ):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            good = await harness.client(wire)
            assert await good.ask(b"before") == (1, b"before")
            bad = await harness.client(wire)
            await bad.send(bytes_sent)
            assert await bad.is_closed()
            assert await good.ask(b"after") == (1, b"after")
            assert harness.connections == [1]
            assert harness.quotas.total == 1

    async def test_api_versions_reaches_its_handler_in_any_version(self, clock, wire):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            client = await harness.client(wire)
            # Headers of version 3 and later end in tagged fields; here there are none.
            answer = await client.ask(b"\0", api_key=18, version=99)
            assert answer == (1, b"")

    async def test_a_half_sent_request_holds_up_nobody(self, clock, wire):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            halves = [await harness.client(wire) for _ in range(3)]
            whole = frame(b"y" * 200_000)
            for half, size in zip(halves, (3, 1000, 150_000), strict=True):
                await half.send(whole[:size])
            good = await harness.client(wire)
            for _ in range(5):
                assert await good.ask(b"alive") == (1, b"alive")
            await halves[2].send(whole[150_000:])
            assert await halves[2].answer() == (1, b"y" * 200_000)

    async def test_a_peer_may_vanish_at_any_byte_of_a_request(self, clock, wire):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            good = await harness.client(wire)
            whole = frame(b"z" * 40)
            for size in range(len(whole) + 1):
                vanishing = await harness.client(wire)
                await vanishing.send(whole[:size])
                await wire.reset(vanishing.stream)
            assert await good.ask(b"alive") == (1, b"alive")
            while harness.connections != [1] or harness.quotas.total != 1:
                assert await good.ask(b"alive") == (1, b"alive")

    async def test_an_answer_for_a_peer_that_has_gone_is_dropped(self, clock, wire):
        entered, leave = trio.Event(), trio.Event()

        async def held(request):
            if request.correlation_id == 5:
                entered.set()
                await leave.wait()
            return await echo(request)

        async with Harness(wire.network, wire.now_ns, held).running() as harness:
            good = await harness.client(wire)
            gone = await harness.client(wire)
            await gone.send(frame(correlation_id=5))
            await entered.wait()
            await wire.reset(gone.stream)
            while harness.quotas.total == 2:
                assert await good.ask(b"alive") == (1, b"alive")
            leave.set()
            while 5 not in [each.correlation_id for each in harness.finished]:
                assert await good.ask(b"alive") == (1, b"alive")
            dropped = next(r for r in harness.finished if r.correlation_id == 5)
            phases = dropped.task.phases()
            assert sum(phases[:-1]) == phases.total_ns

    async def test_a_peer_that_has_finished_sending_still_gets_its_answers(
        self, clock, wire
    ):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            client = await harness.client(wire)
            await client.send(frame(b"one") + frame(b"two"))
            await client.stream.send_eof()
            assert await client.answer() == (1, b"one")
            assert await client.answer() == (1, b"two")
            assert await client.is_closed()

    async def test_a_peer_that_does_not_read_holds_up_nobody(self, clock, wire):
        # More than all buffers between both ends, so that most of it cannot be sent.
        big = bytes(8 << 20)

        async def flood(request):
            if request.api_key == PRODUCE:
                return (struct.pack(">ii", 4 + len(big), 1), memoryview(big))
            return await echo(request)

        async with Harness(wire.network, wire.now_ns, flood).running() as harness:
            slow = await harness.client(wire)
            await slow.send(frame(api_key=PRODUCE, version=8))
            good = await harness.client(wire)
            for _ in range(20):
                assert await good.ask(b"alive") == (1, b"alive")
            assert all(each.api_key != PRODUCE for each in harness.finished)
            correlation_id, body = await slow.answer()
            assert (correlation_id, len(body)) == (1, len(big))
            await good.ask(b"last")
            assert any(each.api_key == PRODUCE for each in harness.finished)

    # ---- bounds -------------------------------------------------------------------

    async def test_an_address_with_too_many_connections_is_refused(self, clock, wire):
        limits = ConnectionLimits(per_address=2)
        harness = Harness(wire.network, wire.now_ns, limits=limits)
        async with harness.running():
            first = await harness.client(wire)
            second = await harness.client(wire)
            assert await first.ask() == (1, b"")
            assert await second.ask() == (1, b"")
            assert await (await harness.client(wire)).is_closed()
            await first.stream.aclose()
            while harness.quotas.total == 2:
                assert await second.ask() == (1, b"")
            assert await (await harness.client(wire)).ask() == (1, b"")

    async def test_beyond_max_connections_the_acceptor_waits(self, clock, wire):
        limits = ConnectionLimits(total=1)
        harness = Harness(wire.network, wire.now_ns, limits=limits)
        async with harness.running(), trio.open_nursery() as nursery:
            first = await harness.client(wire)
            assert await first.ask() == (1, b"")
            second = await harness.client(wire)
            # A TLS client cannot send before the server accepts the connection.
            nursery.start_soon(second.send, frame(b"patient"))
            for _ in range(5):
                assert await first.ask() == (1, b"")
            assert harness.quotas.total == 1
            await first.stream.aclose()
            assert await second.answer() == (1, b"patient")

    async def test_for_the_protected_listener_another_connection_is_closed(
        self, clock, wire
    ):
        limits = ConnectionLimits(total=2, protected="INTERNAL")
        harness = Harness(
            wire.network,
            wire.now_ns,
            limits=limits,
            listeners=("PLAINTEXT", "INTERNAL"),
        )
        async with harness.running():
            older = await harness.client(wire)
            newer = await harness.client(wire)
            assert await older.ask() == (1, b"")
            assert await newer.ask() == (1, b"")
            internal = await harness.client(wire, "INTERNAL")
            assert await internal.ask() == (1, b"")
            # The processor of the other listener sees the excess in its next round.
            await newer.send(frame())
            assert await older.is_closed()
            assert await newer.answer() == (1, b"")
            assert harness.quotas.total == 2

    async def test_without_memory_no_request_begins_to_be_read(self, clock, wire):
        entered, leave = trio.Event(), trio.Event()

        async def held(request):
            if request.api_key == PRODUCE:
                entered.set()
                await leave.wait()
            return await echo(request)

        pool = MemoryPool(1000)
        harness = Harness(wire.network, wire.now_ns, held, pool=pool)
        async with harness.running():
            holder = await harness.client(wire)
            await holder.send(frame(bytes(2000), api_key=PRODUCE, version=8))
            await entered.wait()
            assert pool.exhausted
            others = [await harness.client(wire) for _ in range(3)]
            for other in others:
                await other.send(frame(b"waiting"))
            with trio.move_on_after(0.02):
                await others[0].answer()
                raise AssertionError("a request was read without memory")
            assert harness.plane.queued == 0
            leave.set()
            assert await holder.answer() == (1, bytes(2000))
            for other in others:
                assert await other.answer() == (1, b"waiting")
            assert pool.used_bytes == 0

    async def test_memory_comes_back_from_connections_that_end_badly(self, clock, wire):
        pool = MemoryPool(1 << 20)
        harness = Harness(wire.network, wire.now_ns, pool=pool)
        async with harness.running():
            good = await harness.client(wire)
            for hostile in (frame(version=77), frame(bytes(100_000))[:90_000]):
                bad = await harness.client(wire)
                await bad.send(hostile)
                await bad.stream.send_eof()
                assert await bad.is_closed()
            assert await good.ask() == (1, b"")
            assert pool.used_bytes == 0

    async def test_a_request_that_there_is_no_memory_for_costs_its_connection_only(
        self, clock, wire, monkeypatch, caplog
    ):
        def refused(content):
            raise MemoryError

        pool = MemoryPool(1 << 20)
        harness = Harness(wire.network, wire.now_ns, pool=pool)
        async with harness.running():
            good = await harness.client(wire)
            greedy = await harness.client(wire)
            with monkeypatch.context() as patch:
                patch.setattr("broker.network.receive.BytesIO", refused)
                await greedy.send(frame(bytes(100_000))[:1000])
                assert await greedy.is_closed()
            assert "there is no memory for a request" in caplog.text
            assert await good.ask(bytes(100_000)) == (1, bytes(100_000))
            assert pool.used_bytes == 0

    async def test_control_requests_are_known_by_their_key(self, clock, wire):
        async with Harness(wire.network, wire.now_ns).running() as harness:
            client = await harness.client(wire)
            await client.ask(api_key=LEADER_AND_ISR, version=1)
            await client.ask(api_key=PRODUCE, version=8)
            classes = [request.task.request_class for request in harness.finished]
            assert classes == ["control", "produce"]

    async def test_stopping_answers_what_runs_and_reads_no_more(self, clock, wire):
        entered, leave = trio.Event(), trio.Event()

        async def held(request):
            entered.set()
            await leave.wait()
            return await echo(request)

        async with Harness(wire.network, wire.now_ns, held).running() as harness:
            client = await harness.client(wire)
            await client.send(frame(b"in progress") + frame(b"too late"))
            await entered.wait()
            harness.server.stop_accepting()
            leave.set()
            assert await client.answer() == (1, b"in progress")
            with trio.move_on_after(0.02):
                await client.answer()
                raise AssertionError("a request was read after the stop")
