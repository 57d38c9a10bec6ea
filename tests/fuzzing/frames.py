"""Whole requests of all served APIs and versions, and rarely of others."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from tests.fuzzing.drawn import either, one_in
from tests.fuzzing.extremes import Body, Words

# Requests from controllers and brokers. The broker trusts them: a test whose next
# client must find its topics excludes them.
COMMANDS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
)
ALL = tuple(sorted(map(ApiKey, APIS)))
OF_CLIENTS = tuple(key for key in ALL if key not in COMMANDS)
_SPICES = (6, 30, 200, 100_000)
_CLIENT_IDS = (None, b"", b"\xff", b"c" * 32_740, b"c" * 32_767)


class Sent(NamedTuple):
    """One request: ``frame`` holds all its bytes, including the size."""

    key: int
    version: int
    correlation_id: int
    frame: bytes

    def __str__(self) -> str:
        name = ApiKey(self.key).name if 0 <= self.key < len(ApiKey) else str(self.key)
        return f"{name} v{self.version}, {len(self.frame)} bytes"


def request(
    rng: random.Random, words: Words, keys: Sequence[ApiKey], correlation_id: int
) -> Sent:
    """Return a request of one of ``keys``."""
    key = rng.choice(keys)
    served = APIS[key].served
    version = served[-1] - rng.randrange(len(served))
    return request_of(rng, words, (key, version), correlation_id)


def request_of(
    rng: random.Random, words: Words, api: tuple[int, int], correlation_id: int
) -> Sent:
    """Return a request of this API and version; its header rarely names another."""
    key, version = api
    served = APIS[key].served
    spice = rng.choice(_SPICES)
    body = Body(rng, words, spice).of(key, version)
    if one_in(rng, 200):
        version = rng.choice((served[-1] + 1, -1, 32_767, 0))
    if one_in(rng, 400):
        key = rng.choice((-1, 17, 92, 93, 32_767))
    header = _header(rng, key, version, correlation_id, spice)
    content = _damaged(rng, header + body, len(header))
    size = len(content)
    if one_in(rng, 400):
        size = rng.choice((-1, 0, 7, 1 << 30, 2**31 - 1, -(2**31)))
    return Sent(key, version, correlation_id, struct.pack(">i", size) + content)


def _header(
    rng: random.Random, key: int, version: int, correlation_id: int, spice: int
) -> bytes:
    pieces = [struct.pack(">hhi", key, version, correlation_id)]
    if (key, version) != (ApiKey.CONTROLLED_SHUTDOWN, 0):
        client = either(rng, spice * 2, [b"me"], _CLIENT_IDS)
        pieces.append(struct.pack(">h", -1 if client is None else len(client)))
        pieces.append(client or b"")
    if 0 <= key < len(FIRST_FLEXIBLE) and version >= FIRST_FLEXIBLE[key]:
        tags = [b"\1\7\1x", b"\1\0\0", b"\2\5\0\6\0", b"\xff\xff\xff\xff\x0f"]
        pieces.append(either(rng, spice * 4, [b"\0"], tags))
    return b"".join(pieces)


def _damaged(rng: random.Random, content: bytes, start: int) -> bytes:
    """Return a request unchanged, truncated, extended, or with bytes changed."""
    if not one_in(rng, 12) or len(content) <= start:
        return content
    changed = bytearray(content)
    at = rng.randrange(start, len(changed))
    kind = rng.randrange(4)
    if kind == 0:
        del changed[at:]
    elif kind == 1:
        changed[at] = rng.randrange(256)
    elif kind == 2:
        changed[at:at] = rng.randbytes(rng.randint(1, 4))
    else:
        changed += bytes(rng.randint(1, 100))
    return bytes(changed)
