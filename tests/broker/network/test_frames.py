"""Received frames and sent pieces, at any chunk sizes of the peer."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.network.memory_pool import MemoryPool
from broker.network.receive import READ_SIZE, PeerClosed, Receive
from broker.network.send import FileShrunk, Send
from broker.protocol.errors import MalformedFrame

FRAME_MAX = 300_000
bodies = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.integers(0, 3 * READ_SIZE).map(lambda n: bytes(n)),
    ),
    max_size=6,
)


class Dribble:
    """A connection whose data arrives in chunks of drawn sizes."""

    def __init__(self, data, sizes):
        self.data = memoryview(data)
        self.sizes = iter(sizes)

    def _take(self, wanted):
        if not self.data:
            raise BlockingIOError
        size = min(wanted, max(1, next(self.sizes, len(self.data))))
        chunk, self.data = bytes(self.data[:size]), self.data[size:]
        return chunk

    def recv(self, size):
        return self._take(size)

    def recv_into(self, buffer, size=0):
        chunk = self._take(size or len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def framed(*contents):
    return b"".join(struct.pack(">i", len(each)) + each for each in contents)


def receive(connection, pool=None):
    return Receive(connection, frame_bytes_max=FRAME_MAX, pool=pool)


@given(bodies, st.lists(st.integers(1, 2 * READ_SIZE), max_size=40))
def test_frames_come_out_as_they_were_sent(contents, sizes):
    pool = MemoryPool(1 << 30)
    connection = Dribble(framed(*contents), sizes)
    reading = receive(connection, pool)
    got = []
    for _ in range(10_000):
        # Set the event each time: a real selector reports every arrival.
        reading.readable = True
        frame = reading.next_frame()
        if frame is not None:
            got.append(frame)
        elif not connection.data and not reading.buffered:
            break
    assert got == contents
    assert all(type(each) is bytes for each in got)
    assert pool.used_bytes == sum(map(len, contents))


def test_a_frame_split_in_its_size_is_put_together():
    whole = framed(b"abc", b"d")
    for cut in range(len(whole)):
        connection = Dribble(whole, [cut] if cut else [])
        reading = receive(connection)
        got = []
        while connection.data or reading.buffered:
            reading.readable = True
            frame = reading.next_frame()
            if frame is not None:
                got.append(frame)
        assert got == [b"abc", b"d"]


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_MAX + 1, 2**31 - 1])
def test_a_size_out_of_bounds_is_malformed_before_its_body_comes(size):
    reading = receive(Dribble(struct.pack(">i", size), []))
    reading.readable = True
    with pytest.raises(MalformedFrame, match=str(size)):
        reading.next_frame()


def test_the_largest_frame_allowed_is_received():
    reading = receive(Dribble(framed(bytes(FRAME_MAX)), []))
    reading.readable = True
    assert reading.next_frame() == bytes(FRAME_MAX)


@pytest.mark.parametrize("sent", [b"", b"\0\0", framed(b"abcdef")[:7]])
def test_an_end_inside_a_frame_is_the_end(sent):
    class Ending(Dribble):
        def recv(self, size):
            return bytes(self._take(size)) if self.data else b""

    reading = receive(Ending(sent, []))
    reading.peer_finished = True
    reading.readable = True
    with pytest.raises(PeerClosed):
        reading.next_frame()


def test_an_abandoned_frame_gives_its_memory_back():
    pool = MemoryPool(1 << 20)
    reading = receive(Dribble(framed(bytes(200_000))[:100_000], []), pool)
    reading.readable = True
    assert reading.next_frame() is None
    assert reading.inside_frame
    assert pool.used_bytes == 200_000
    reading.abandon()
    assert pool.used_bytes == 0


def test_a_fast_peer_gets_one_turn_at_a_time():
    class Endless(Dribble):
        def recv_into(self, buffer, size=0):
            return len(buffer)

    reading = Receive(
        Endless(struct.pack(">i", 64 << 20), []), frame_bytes_max=64 << 20, pool=None
    )
    reading.readable = True
    assert reading.next_frame() is None
    reading.readable = True
    turns = 1
    while reading.next_frame() is None:
        assert reading.readable
        turns += 1
    assert turns == 64


# ---- sending ------------------------------------------------------------------------


class Region:
    def __init__(self, content, position, size):
        self.content, self.position, self.size = content, position, size

    def fileno(self):
        return -1

    def read(self):
        return self.content[self.position : self.position + self.size]


class Sink:
    """A selector and connection that accept drawn amounts of bytes, sometimes none."""

    def __init__(self, amounts):
        self.amounts = iter(amounts)
        self.taken = b""

    def _room(self):
        amount = next(self.amounts, 1 << 30)
        if amount == 0:
            raise BlockingIOError
        return amount

    def send_many(self, connection, pieces, more):
        chunk = b"".join(pieces)[: self._room()]
        self.taken += chunk
        return len(chunk)

    def send_file(self, connection, region, skip, size):
        start = region.position + skip
        chunk = region.content[start : start + size][: self._room()]
        self.taken += chunk
        return len(chunk)


FILE = bytes(range(256)) * 8
regions = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(
    lambda at: Region(FILE, at[0], at[1])
)
memory = st.binary(max_size=50)


@given(
    st.lists(st.one_of(memory, memory.map(memoryview), regions), max_size=8),
    st.lists(st.integers(0, 60), max_size=60),
)
def test_pieces_are_sent_once_each_and_in_order(pieces, amounts):
    sink = Sink(amounts)
    send = Send(sink, sink, pieces)
    # Empty pieces at the front count as sent before any write.
    send.skip(0)
    while not send.done:
        send.write()
    expected = [
        piece.read() if isinstance(piece, Region) else bytes(piece) for piece in pieces
    ]
    assert sink.taken == b"".join(expected)


def test_a_blocked_send_says_so_and_goes_on_later():
    sink = Sink([3, 0])
    send = Send(sink, sink, [b"abcdef"])
    assert send.write() is False
    assert not send.done
    assert send.write() is True
    assert send.done
    assert sink.taken == b"abcdef"


def test_a_file_that_shrank_breaks_the_connection_not_the_broker():
    sink = Sink([])
    send = Send(sink, sink, [Region(b"abc", 2, 5)])
    with pytest.raises(FileShrunk):
        send.write()


class CountedPieces(list):
    """A list that counts accesses to its items, also those in a slice."""

    looks = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self.looks += len(found) if isinstance(at, slice) else 1
        return found


@pytest.mark.parametrize("kind", ["memory", "by turns"])
def test_an_answer_in_many_pieces_costs_each_piece_once(kind):
    region = Region(FILE, 7, 1)
    every = 2 if kind == "by turns" else 1
    pieces = CountedPieces(b"x" if at % every == 0 else region for at in range(20_000))
    sink = Sink([])
    send = Send(sink, sink, pieces)
    while not send.done:
        send.write()
    assert len(sink.taken) == 20_000
    assert pieces.looks <= 8 * 20_000


def test_no_more_pieces_are_handed_over_than_one_call_takes():
    calls = []

    class Recording(Sink):
        def send_many(self, connection, pieces, more):
            calls.append((len(pieces), more))
            return super().send_many(connection, pieces, more)

    sink = Recording([])
    send = Send(sink, sink, [b"x"] * 2500)
    while not send.done:
        send.write()
    assert calls == [(1024, True), (1024, True), (452, False)]


def test_a_greedy_peer_gets_one_turn_at_a_time():
    sink = Sink([1 << 16] * 1000)
    send = Send(sink, sink, [bytes(4 << 20)])
    turns = 0
    while not send.done:
        assert send.write() is True
        turns += 1
    assert turns == 4
