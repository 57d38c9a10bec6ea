"""One fuzzing case per byte string, as a coverage-guided fuzzer generates them.

The first number selects the kind of case: requests to a broker's handlers, batches
appended to a log, malformed records in the offsets topic, or a damaged disk. Cases run
much faster than `tests.fuzzing.onslaught`, which includes the network and the planes.
"""

from __future__ import annotations

import struct
from functools import cache

from broker.disk.memory import MemoryStorage
from broker.handling.api_registry import APIS
from broker.log import trimming
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep import cleaner, recovery
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, KafkaError, MalformedFrame
from broker.protocol.wire.codec import decode_response
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import START_MS
from tests.fuzzing import disks
from tests.fuzzing.drawn import Drawn
from tests.fuzzing.extremes import Words
from tests.fuzzing.frames import ALL, COMMANDS, Sent, request
from tests.fuzzing.known import Broken
from tests.fuzzing.readable import check_readable
from tests.fuzzing.record_batches import extreme_batch

REQUESTS_MAX = 12
# Several rounds of retention and compaction.
_LATER_MS = 15 * 60_000


def play(data: bytes) -> None:
    """Play one case; raise if the broker misbehaves."""
    drawn = Drawn(data)
    (_requests, _requests, _batches, _offsets, _disk)[drawn.randrange(5)](drawn)


def _requests(drawn: Drawn) -> None:
    world = World()
    words = Words()
    words.topic_ids += [
        world.create("t", 2).bytes,
        world.create("c", 2, cleanup_policy="compact").bytes,
    ]
    commanded = False
    for number in range(REQUESTS_MAX):
        sent = request(drawn, words, ALL, number)
        commanded = commanded or sent.key in COMMANDS
        _send(world, sent)
        if drawn.spent:
            break
    world.pass_ms(_LATER_MS)
    world.check()
    if not commanded:
        world.create("next")
        if world.produce("next", b"x").error_code is not NONE:
            raise Broken("a plain produce is refused")
    World(storage=world.storage.after_kill()).check()


def _send(world: World, sent: Sent) -> None:
    (size,) = struct.unpack_from(">i", sent.frame)
    if size != len(sent.frame) - 4:
        return
    try:
        call = world.start_frame(sent.frame[4:])
    except MalformedFrame:
        return
    if call.done and not call.closed and call.frame:
        version = call.request.api_version
        if (
            call.request.api_key == ApiKey.API_VERSIONS
            and version not in APIS[ApiKey.API_VERSIONS].served
        ):
            version = 0
        decode_response(call.request.api_key, version, call.frame[4:])


def _batches(drawn: Drawn) -> None:
    policy = drawn.choice(({}, {"cleanup_policy": frozenset({"compact"})}))
    storage = MemoryStorage()
    storage.make_directory("/data")
    config = LogConfig(segment_bytes=drawn.choice((1 << 20, 300)), **policy)
    log = recovery.open_log("/data/t-0", config, storage, START_MS)
    for _ in range(6):
        try:
            log.append(extreme_batch(drawn), drawn.randrange(3), START_MS)
        except KafkaError:
            continue
    log.check()
    again = recovery.open_log("/data/t-0", config, storage.after_kill(), START_MS)
    again.check()
    if again.log_end_offset != log.log_end_offset:
        raise Broken(f"{log.log_end_offset} was the end, {again.log_end_offset} is")
    check_readable(again)
    end = again.log_end_offset
    trimming.retention(again, START_MS, end)
    if config.compacts:
        for _ in cleaner.compaction(again, START_MS, end):
            pass
    again.check()


@cache
def _disk_left(clean: bool) -> MemoryStorage:
    return disks.written(clean=clean)


def _offsets(drawn: Drawn) -> None:
    storage = _disk_left(False).after_kill()
    disks.put_nonsense_into_offsets(drawn, storage)
    _lives(World(storage=storage))


def _disk(drawn: Drawn) -> None:
    storage = _disk_left(drawn.choice((True, False))).after_kill()
    for _ in range(drawn.randint(1, 3)):
        disks.damage(drawn, storage)
    try:
        world = World(storage=storage)
    except ConfigError:
        return
    _lives(world)


def _lives(world: World) -> None:
    world.pass_ms(_LATER_MS)
    world.create("fresh")
    if world.produce("fresh", b"x").error_code is not NONE:
        raise Broken("a plain produce is refused")
    world.broker.close()
