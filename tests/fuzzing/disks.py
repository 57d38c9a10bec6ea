"""Damaged data directories, and offsets topics with malformed records.

`written` is a broker's data directory after an orderly stop or a kill; `damage` changes
it. A broker over a damaged directory must start and serve, or refuse to start with a
`ConfigError`. No undamaged log may be lost.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import suppress

from broker.disk.memory import MemoryStorage
from broker.disk.storage import join, read_whole
from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import OffsetKey, offset_record
from broker.log import flushing
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep import recovery
from broker.protocol.api_keys import ApiKey
from broker.protocol.records.batch_records import new_batch
from broker.shards.group_partition import partition_for
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import SECONDS_30, START_MS, new_topic
from tests.fuzzing.drawn import either, one_in
from tests.fuzzing.record_batches import extreme_batch

HOME = "/data"
OFFSETS = "__consumer_offsets"
SOUND_GROUP = "sound"
# Names that occur in data directories, of partitions or not.
_FOREIGN = (
    "lost+found",
    "x-0",
    "t-0",
    "t-1-delete",
    "t-0.0123456789abcdef0123456789abcdef-delete",
    "t-0-stray",
    "t-99999999999999999999",
    "t--1",
    "-0",
    "..-0",
    "n" * 253 + "-0",
    "n" * 249 + "-0",
    "00000000000000000000.log",
    "99999999999999999999.log",
    "meta.properties.tmp",
)


def written(*, clean: bool) -> MemoryStorage:
    """Return a disk with topics of some segments and a group's offsets."""
    world = World()
    for name, policy in (("t", "delete"), ("c", "compact")):
        configs = [("segment.bytes", "200"), ("cleanup.policy", policy)]
        topics = [new_topic(name, 2, configs=configs)]
        world.send(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=SECONDS_30)
    for number in range(12):
        world.produce("tc"[number % 2], b"%d" % number, partition=number % 3 % 2)
    world.send(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    world.send(ApiKey.OFFSET_COMMIT, 2, group_id="g", member_id="", topics=topics)
    world.pass_ms(1)
    if clean:
        world.broker.close()
    kept: MemoryStorage = world.storage.after_kill()
    return kept


def files(storage: MemoryStorage, directory: str) -> Iterator[str]:
    """Yield the paths of all files at and under a directory."""
    for name in storage.names(directory):
        path = join(directory, name)
        if storage.is_directory(path):
            yield from files(storage, path)
        else:
            yield path


def logs(storage: MemoryStorage) -> dict[str, bytes]:
    """Return the content of each log's files, by directory."""
    found: dict[str, bytes] = {}
    for path in files(storage, HOME):
        if path.endswith(".log"):
            home = path.rpartition("/")[0]
            found[home] = found.get(home, b"") + read_whole(storage, path)
    return found


def damage(rng: random.Random, storage: MemoryStorage) -> str:
    """Damage a random file or directory, and return its path."""
    path = rng.choice(list(files(storage, HOME)))
    file = storage.open(path)
    at = rng.randrange(file.size() + 1)
    kind = rng.randrange(6)
    if kind == 0:
        file.truncate(at)
    elif kind == 1 and file.size():
        file.write(min(at, file.size() - 1), (rng.randbytes(1),), 1)
    elif kind == 2:
        added = rng.choice((b"\0" * 40, rng.randbytes(70), extreme_batch(rng)))
        if added:
            file.write(file.size(), (added,), len(added))
    elif kind == 3:
        storage.remove(path)
    elif kind == 4:
        return _foreign(rng, storage)
    else:
        other = read_whole(storage, rng.choice(list(files(storage, HOME))))
        file.truncate(0)
        if other:
            file.write(0, (other,), len(other))
    return path


def _foreign(rng: random.Random, storage: MemoryStorage) -> str:
    """Create a file or a directory that no broker would create."""
    homes = [HOME, join(HOME, "t-0"), join(HOME, f"{OFFSETS}-0")]
    path = join(rng.choice(homes), rng.choice(_FOREIGN))
    if one_in(rng, 2):
        with suppress(FileExistsError):
            storage.make_directory(path)
        return path
    with suppress(OSError):
        content = rng.randbytes(rng.choice((0, 1, 61, 300)))
        file = storage.open(path, create=True)
        if content:
            file.write(0, (content,), len(content))
    return path


# ---- __consumer_offsets -------------------------------------------------------------


def _text(rng: random.Random) -> bytes:
    text = either(rng, 8, [b"g", b"t", b""], [b"\xff\xfe", b"x" * 32_767, b"n" * 300])
    size = either(rng, 12, [len(text)], [-1, -2, 32_767])
    return struct.pack(">h", size) + text


def _key(rng: random.Random) -> bytes | None:
    version = either(rng, 6, [0, 1, 2], [3, 4, -1, 32_767])
    content = struct.pack(">h", version) + _text(rng)
    if version < 2:
        number = either(rng, 4, [0, 1], [-1, 2**31 - 1, -(2**31)])
        content += _text(rng) + struct.pack(">i", number)
    rare = [None, b"", b"\0", content[:-1], content + b"\0"]
    return either(rng, 20, [content], rare)


def _value(rng: random.Random) -> bytes | None:
    version = either(rng, 6, [0, 1, 2, 3, 4], [5, -1, 32_767])
    numbers = [0, -1, 2**31 - 1, -(2**31), 1]
    if one_in(rng, 2):
        offset = rng.choice((0, 5, -1, 2**63 - 1, -(2**63)))
        content = struct.pack(">q", offset)
        if version >= 3:
            content += struct.pack(">i", rng.choice(numbers))
        times = (START_MS, -1, 2**63 - 1, -(2**63))
        content += _text(rng) + struct.pack(">qq", rng.choice(times), rng.choice(times))
    else:
        content = _text(rng) + struct.pack(">i", rng.choice(numbers))
        content += _text(rng) + _text(rng) + struct.pack(">q", START_MS)
        members = either(rng, 6, [0, 1, 2], [-1, 2**31 - 1, 1000])
        content += struct.pack(">i", members)
        for _ in range(max(0, min(members, 2))):
            content += _text(rng) + _text(rng) + _text(rng) + _text(rng)
            content += struct.pack(">ii", rng.choice(numbers), rng.choice(numbers))
            content += struct.pack(">i", rng.choice((0, 0, *numbers))) * 2
    whole = struct.pack(">h", version) + content
    return either(rng, 10, [whole], [None, b"", whole[:-1], whole[: len(whole) // 2]])


def put_nonsense_into_offsets(rng: random.Random, storage: MemoryStorage) -> None:
    """Append records and batches to a partition of the offsets topic, then a commit."""
    home = join(HOME, f"{OFFSETS}-{partition_for(SOUND_GROUP, 2)}")
    log = recovery.open_log(home, LogConfig(), storage, START_MS)
    for _ in range(rng.randint(1, 12)):
        if one_in(rng, 5):
            with suppress(Exception):  # A log holds no record that it refuses.
                log.append(extreme_batch(rng), 0, START_MS)
        else:
            records = [(START_MS, _key(rng), _value(rng)) for _ in range(3)]
            log.append(new_batch(records), 0, START_MS)
    log.append(new_batch([(START_MS, *committed())]), 0, START_MS)
    flushing.flush(log)


def committed() -> tuple[bytes, bytes | None]:
    """Return the valid commit that follows the malformed records."""
    commit = OffsetCommit(42, -1, "", START_MS, -1)
    record = offset_record(OffsetKey(SOUND_GROUP, "t", 0), commit)
    return record.key, record.value
