"""CPU accounting of a poll: each request is charged for its own reads and writes."""

from types import SimpleNamespace

import pytest

from broker.network.kafka_channel import KafkaChannel
from broker.network.kafka_selector import KafkaSelector
from broker.network.transport import READABLE, WRITABLE
from broker.observation.supervisor import Supervisor
from planes.cpu_ledger import CpuLedger

CALL_NS, ROOM = 7_000, 10


class Wire:
    """Connections that accept ten bytes per call and then block; calls take time."""

    def __init__(self):
        self.now_ns = 1_000_000
        self.events = []
        self.bills = []
        self.selector = KafkaSelector(
            self,
            pool=None,
            ledger=CpuLedger(lambda: self.now_ns),
            debit=lambda task, used_ns: self.bills.append((task, used_ns)),
            supervisor=Supervisor(),
        )

    def channel(self, number):
        channel = KafkaChannel(
            Connection(self, number),
            connection_id=number,
            host="host",
            listener="PLAINTEXT",
            frame_bytes_max=100,
            pool=None,
            now_ns=0,
        )
        channel.request = SimpleNamespace(task=f"task {number}", end_wait=None)
        self.selector.register(channel)
        return channel

    # ---- the `Selector` protocol ----

    def register(self, connection):
        pass

    unregister = register

    def poll(self):
        events, self.events = self.events, []
        return events

    async def wait(self):
        raise AssertionError("nobody waits here")

    def wakeup(self):
        pass

    def send_many(self, connection, pieces, more):
        return connection.send(b"".join(pieces))


class Connection:
    def __init__(self, wire, number):
        self.wire = wire
        self.number = number
        self.blocked = False
        self.broken = False

    def fileno(self):
        return self.number

    def send(self, data):
        self.wire.now_ns += CALL_NS
        if self.broken:
            raise BrokenPipeError
        self.blocked = not self.blocked
        if not self.blocked:
            raise BlockingIOError
        return min(len(data), ROOM)

    def recv_into(self, buffer, size=0):
        self.wire.now_ns += CALL_NS
        raise BlockingIOError

    recv = recv_into

    def close(self):
        pass


def test_later_writes_are_billed_to_the_answered_request():
    wire = Wire()
    one, two = wire.channel(1), wire.channel(2)
    assert not wire.selector.send(one, [b"x" * 25])
    assert not wire.selector.send(two, [b"y" * 15])
    # The first write belongs to the turn that hands the response over.
    assert wire.bills == []
    wire.now_ns += 500_000
    wire.events = [(1, WRITABLE), (2, WRITABLE)]
    assert wire.selector.poll() == []
    # Request 1 pays for a write of ten bytes and a blocked one, request 2 for a write.
    assert wire.bills == [("task 1", 2 * CALL_NS), ("task 2", CALL_NS)]
    assert wire.selector.completed_sends == [two]
    wire.now_ns += 500_000
    wire.events = [(1, WRITABLE)]
    wire.selector.poll()
    assert wire.bills[2:] == [("task 1", CALL_NS)]
    assert wire.selector.completed_sends == [two, one]
    wire.selector.check()


@pytest.mark.parametrize("pieces", [[b"x" * 5], [b"x" * 5, b"y" * 5]])
def test_a_connection_that_breaks_as_its_response_is_begun_is_closed(pieces):
    wire = Wire()
    one, two = wire.channel(1), wire.channel(2)
    one.connection.broken = True
    assert not wire.selector.send(one, pieces)
    assert wire.selector.disconnected == [one]
    assert wire.selector.channel(1) is None
    assert wire.selector.channel(2) is two
    wire.selector.check()


def test_a_connection_that_breaks_within_its_response_is_closed():
    wire = Wire()
    one = wire.channel(1)
    assert not wire.selector.send(one, [b"x" * 25])
    one.connection.broken = True
    wire.events = [(1, WRITABLE)]
    wire.selector.poll()
    assert wire.selector.disconnected == [one]
    assert wire.selector.completed_sends == []
    wire.selector.check()


def test_reading_time_is_kept_for_an_incomplete_request():
    wire = Wire()
    one, two = wire.channel(1), wire.channel(2)
    wire.selector.send(two, [b"y" * 15])
    wire.events = [(1, READABLE), (2, WRITABLE), (1, READABLE)]
    wire.selector.poll()
    assert wire.bills == [("task 2", CALL_NS)]
    assert one.reading_ns == 2 * CALL_NS
    assert two.reading_ns == 0
