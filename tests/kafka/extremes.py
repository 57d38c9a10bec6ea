"""Random extreme requests whose responses must agree between both brokers.

The generator is that of the property tests and of `make fuzz`. Requests that two
correct brokers may answer differently are left out here, with a reason for each kind.
`test_same_extremes.py` sends the others to both.
"""

from __future__ import annotations

import dataclasses
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from broker.protocol.records.batch import CODEC_MASK, check_framing
from broker.protocol.wire.codec import decode, decode_response, request_type
from broker.protocol.wire.frame_bounds import Walk, bounds_check
from broker.protocol.wire.header import RequestHeader, parse_request_header
from tests.fuzzing.extremes import Words
from tests.fuzzing.frames import Sent, request_of
from tests.kafka.differences import IDENTITIES

# Placeholders for topic ids, which differ between the brokers.
TOPIC_IDS = (b"\x11" * 16, b"\x22" * 16)
# Kafka reads a varint of 2^31 or more as a negative number.
_NEGATIVE_VARINT = re.compile(rb"[\x80-\xff]{4}[\x08-\x0f]")
# Reasons why kio refuses requests that Kafka reads; no client sends them.
_STRICTER = {
    "InvalidUnicode": "Java reads question marks where text is no UTF-8",
    "NegativeByteLength": "Kafka takes a length below -1 for null",
    "negative array length": "the same",
    "Invalid boolean value": "Kafka takes every byte but 0 for true",
    "tagged field of": "Kafka does not look at the size of a tagged field it knows",
    "timedelta milliseconds overflow": "times beyond 10^9 days cannot be held here",
}
_TAGS_IN_USE = 16
_CODEC_AT, _LAST_CODEC = 22, 4
_OPERATIONS = {0, 1, 2, 3}
_LONG = 30_000
_LONGEST_WAIT = timedelta(milliseconds=100)
_SHORTEST_TIMEOUT = timedelta(seconds=5)
_PARTITIONS_MAX, _PARTITIONS_REFUSED = 8, 10_000


def comparable(
    rng: random.Random, words: Words, api: tuple[int, int], number: int
) -> Sent:
    """Return the next generated request of ``api`` that both must answer alike."""
    while True:
        sent = request_of(rng, words, api, number)
        if incomparable(sent) is None:
            return sent


def incomparable(sent: Sent) -> str | None:
    """Return a reason why brokers may answer differently, or None."""
    frame = sent.frame[4:]
    (size,) = struct.unpack_from(">i", sent.frame)
    if size > len(frame):
        return "the rest of the frame is waited for"
    frame = frame[: max(size, 0)]
    flexible = (
        0 <= sent.key < len(FIRST_FLEXIBLE) and sent.version >= FIRST_FLEXIBLE[sent.key]
    )
    if flexible and _NEGATIVE_VARINT.search(frame):
        return "Kafka takes 2^31 tagged fields, or bytes, for less than none"
    try:
        header = parse_request_header(frame)
    except MalformedFrame as error:
        return "Java reads question marks" if "UTF-8" in str(error) else None
    try:
        body = decode(header.api_key, header.api_version, frame, header.body_offset)
    except MalformedFrame as error:
        if any(each in frame for each in TOPIC_IDS):
            return "bytes of an id may be read as anything, and each broker has its own"
        told = f"{error} {error.__cause__!r}"
        return next((why for what, why in _STRICTER.items() if what in told), None)
    api = ApiKey(header.api_key), header.api_version
    return _of_tags(header, frame) or _of_body(api, body)


def _of_tags(header: RequestHeader, frame: bytes) -> str | None:
    check = bounds_check(request_type(header.api_key, header.api_version))
    if check is not None:
        walk = Walk(len(frame))
        check(frame, header.body_offset, len(frame), walk)
        if any(frame[start] < _TAGS_IN_USE and not by for start, _, by in walk.edits):
            return "Kafka refuses tags that its schema has in other versions only"
    return None


def _of_body(api: tuple[ApiKey, int], body: Any) -> str | None:
    if any(map(_repeats, _arrays(body))):
        return "said twice in one array: which of the two counts is nowhere said"
    found: dict[str, list[Any]] = {}
    for name, value in _fields(body):
        found.setdefault(name, []).append(value)
    key = api[0]
    partitions = max([*found.get("num_partitions", ()), *found.get("count", ()), 0])
    reasons = {
        "both would say nothing for a while": (
            max(found.get("max_wait", [_LONGEST_WAIT])) > _LONGEST_WAIT
        ),
        "Kafka answers before its controller has: it may or may not have done it": (
            key.name.startswith(("CREATE_", "DELETE_", "ALTER_", "ELECT_"))
            and min(found.get("timeout", [_SHORTEST_TIMEOUT])) < _SHORTEST_TIMEOUT
        ),
        "one topic by its name and by its id is said twice": (
            key is ApiKey.METADATA
            and any(found.get("topic_id", ()))
            and any(found.get("name", ()))
        ),
        "there are no transactions here": (
            any(found.get("transactional_id", ())) or 1 in found.get("key_type", ())
        ),
        "many partitions are made, and nothing more is shown by that": (
            partitions > _PARTITIONS_MAX
            and not (key is ApiKey.CREATE_TOPICS and partitions > _PARTITIONS_REFUSED)
        ),
        "the broker itself would be altered, and all that is asked later": (
            "ALTER_CONFIGS" in key.name and 4 in found.get("resource_type", ())
        ),
    }
    own = _kafkas_own(api, found)
    return own or next((why for why, it_is_so in reasons.items() if it_is_so), None)


def _kafkas_own(api: tuple[ApiKey, int], found: Mapping[str, list[Any]]) -> str | None:
    """Return a reason not to imitate Kafka's answer to the request, or None."""
    key, version = api
    batches = [each or b"" for each in found.get("records", ())]
    reasons = {
        "without records it leaves the connection muted (allowed_differences.md)": (
            key is ApiKey.PRODUCE and None in found.get("records", ())
        ),
        "of one broken batch it refuses all the others, too": (
            any(map(_is_broken, batches))
        ),
        "it trips over a codec that there is not (allowed_differences.md)": any(
            each[_CODEC_AT] & CODEC_MASK > _LAST_CODEC
            for each in batches
            if len(each) > _CODEC_AT
        ),
        "it trips over an operation that there is not (allowed_differences.md)": (
            not set(found.get("config_operation", ())) <= _OPERATIONS
        ),
        "it trips over its own message about so long a name": (
            key is ApiKey.CREATE_TOPICS
            and max((len(each.encode()) for each in found.get("name", ())), default=0)
            > _LONG
        ),
        "whether it trips over an isolation level depends on what else is asked": (
            key is ApiKey.FETCH and not set(found["isolation_level"]) <= {0, 1}
        ),
        "whether it trips over an id of zero depends on that, too": (
            key is ApiKey.FETCH
            and any(each in (None, UUID(int=0)) for each in found.get("topic_id", ()))
        ),
        "it never answers who asks for the offsets of no group": (
            key is ApiKey.OFFSET_FETCH and version >= 8 and not found.get("group_id")
        ),
        "it answers with nothing at all (allowed_differences.md)": (
            key is ApiKey.METADATA
            and version < 12
            and (any(found.get("topic_id", ())) or None in found.get("name", ()))
        ),
        "of a group that is not there Kafka 4 says what we say": (
            key is ApiKey.OFFSET_COMMIT
            and version >= 9
            and max(found.get("generation_id_or_member_epoch", [-1])) >= 0
        ),
    }
    return next((why for why, it_is_so in reasons.items() if it_is_so), None)


def _is_broken(records: bytes | None) -> bool:
    try:
        check_framing(records or b"")
    except KafkaError as error:
        return error.code is ErrorCode.corrupt_message
    return False


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of all plain fields of a body, at any depth."""
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        for each in held if isinstance(held, tuple) else (held,):
            if dataclasses.is_dataclass(each):
                yield from _fields(each)
            else:
                yield field.name, each


def _arrays(value: Any) -> Iterator[tuple[Any, ...]]:
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        if isinstance(held, tuple):
            yield held
        for each in held if isinstance(held, tuple) else (held,):
            if dataclasses.is_dataclass(each):
                yield from _arrays(each)


def _repeats(array: tuple[Any, ...]) -> bool:
    """Return whether two items of an array have the same identity."""
    names = [
        tuple(getattr(each, name, None) for name in IDENTITIES)
        if dataclasses.is_dataclass(each)
        else each
        for each in array
    ]
    return len(set(names)) < len(names)


def error_codes(key: int, version: int, frame: bytes) -> str:
    """Return the number of occurrences of each error code in a response."""
    answer = decode_response(key, version, frame)[1]
    codes = [value for name, value in _fields(answer) if name == "error_code"]
    counted = Counter(ErrorCode(code).name for code in codes)
    return ", ".join(f"{counted[name]} {name}" for name in sorted(counted))
