"""Memory of zstd windows under preemption: one large window at a time (review 2, S6).

A frame of a few hundred bytes may declare a window of 128 MB, which the library
allocates until the frame is decompressed. The tests set the window size in the frame's
header (RFC 8878, section 3.1.1.1.2), so they need no such memory.
"""

import pytest
import trio
import zstandard

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.records import codecs
from broker.protocol.records.batch import HEADER_SIZE
from broker.protocol.records.batch_records import new_batch
from tests.broker.apis.requests import START_MS, produce_fields
from tests.broker.log.witness import altered
from tests.virtual.kafka import SETTINGS, ask, create_topic, kafka
from tests.virtual.world import in_world

CONNECTIONS = 20
RECORDS = 20_000
DESCRIPTOR_AT = HEADER_SIZE + 5
# The window descriptor: binary logarithm minus 10, then eighths.
WINDOW_8_MB = 13 << 3
WINDOW_9_MB = WINDOW_8_MB + 1
WINDOW_128_MB = 17 << 3


def batch_of(window):
    """Return compressed records with that window; the last has the newest timestamp."""
    times_ms = [START_MS] * (RECORDS - 1) + [START_MS + 1]
    plain = new_batch([(each, None, b"v") for each in times_ms])
    # Without a content size, the frame header has a window descriptor.
    packer = codecs.Packer(codecs.ZSTD)
    packed = packer.add(plain[HEADER_SIZE:]) + packer.end()
    fields = {
        8: ("i", HEADER_SIZE - 12 + len(packed)),
        21: ("h", codecs.ZSTD),
        DESCRIPTOR_AT: ("B", window),
    }
    return altered(plain[:HEADER_SIZE] + packed, fields)


class Unpacking:
    """Counts running decompressions, and their maximum."""

    def __init__(self):
        self.now = self.most = self.all = 0

    def __call__(self, data):
        self.now += 1
        self.all += 1
        self.most = max(self.most, self.now)
        try:
            yield from UNZSTD(data)
        finally:
            self.now -= 1


UNZSTD = codecs._UNPACKERS[codecs.ZSTD]


def unpacked_at_once(window, policy):
    """Return the most simultaneous decompressions of Produces and ListOffsets."""
    most = []

    fields = produce_fields({("t", 0): batch_of(window)})

    async def produce(stream):
        answer = await ask(stream, ApiKey.PRODUCE, 8, **fields)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code is ErrorCode.none

    async def list_offsets(stream):
        wanted = {"partition_index": 0, "timestamp": START_MS + 1}
        topics = [{"name": "t", "partitions": [wanted]}]
        answer = await ask(
            stream,
            ApiKey.LIST_OFFSETS,
            3,
            replica_id=-1,
            isolation_level=0,
            topics=topics,
        )
        assert answer.topics[0].partitions[0].offset == RECORDS - 1

    async def scenario(world):
        streams = [world.connect() for _ in range(CONNECTIONS)]
        await create_topic(streams[0], 1)
        for request in (produce, list_offsets):
            counter = Unpacking()
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(codecs._UNPACKERS, codecs.ZSTD, counter)
                async with trio.open_nursery() as nursery:
                    for stream in streams:
                        nursery.start_soon(request, stream)
            assert counter.all >= CONNECTIONS
            assert counter.now == 0
            most.append(counter.most)

    settings = {**SETTINGS, "doorkeeper.scheduler": policy}
    in_world(scenario, settings, application=kafka)
    return most


@pytest.mark.parametrize(
    ("window", "policy"), [(WINDOW_9_MB, "ps"), (WINDOW_128_MB, "las")]
)
def test_one_request_at_a_time_is_preempted_with_a_large_window(window, policy):
    assert unpacked_at_once(window, policy) == [1, 1]


def test_requests_with_small_windows_do_not_wait_for_each_other():
    assert min(unpacked_at_once(WINDOW_8_MB, "ps")) > CONNECTIONS // 2


def window_of(data):
    steps = codecs.check_stream(codecs.ZSTD, data)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return done.value


@pytest.mark.parametrize("content", [0, 1, 255, 256, 70_000, 9 << 20])
def test_the_window_is_the_one_that_the_library_reads(content):
    sized = zstandard.compress(bytes(content))
    expected = zstandard.get_frame_parameters(sized).window_size
    # Content sizes of 256 to 65,791 are encoded minus 256 (section 3.1.1.1.4).
    assert 0 <= expected - window_of(sized) <= 256
    packer = codecs.Packer(codecs.ZSTD)
    streamed = bytearray(packer.add(bytes(content)) + packer.end())
    for descriptor in range(22 << 3):
        streamed[5] = descriptor
        expected = zstandard.get_frame_parameters(bytes(streamed)).window_size
        assert window_of(streamed) == expected
        assert window_of(bytes(streamed) + sized) == max(expected, window_of(sized))
