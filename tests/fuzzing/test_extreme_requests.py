"""Every API and version with extreme fields: answered, or the connection closed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire import codec
from broker.protocol.wire.header import parse_request_header
from tests.fuzzing.drawn import Drawn
from tests.fuzzing.extremes import Words
from tests.fuzzing.frames import ALL, COMMANDS, OF_CLIENTS, request
from tests.fuzzing.known import is_known
from tests.fuzzing.onslaught import onslaught


def answered(
    seeds: range, keys: Sequence[ApiKey], count: int
) -> Counter[tuple[int, int]]:
    """Count the answers by API and version, over runs of these seeds."""
    found: Counter[tuple[int, int]] = Counter()
    for seed in seeds:
        try:
            found += onslaught(seed, keys, count).answered
        except BaseException as error:
            if not is_known(error):
                raise
    return found


def versions(keys: Sequence[ApiKey]) -> set[tuple[int, int]]:
    return {(key, version) for key in keys for version in APIS[key].served}


@pytest.mark.parametrize("keys", [OF_CLIENTS, COMMANDS], ids=["clients", "controllers"])
def test_every_extreme_request_is_answered_or_closed_and_nothing_is_held(
    keys: Sequence[ApiKey],
) -> None:
    count = 18 * len(keys)
    found = answered(range(6), keys, count)
    assert versions(keys) - set(found) == set()


def test_all_of_them_at_once() -> None:
    assert answered(range(100, 103), ALL, 400)


def test_most_requests_are_ones_that_handlers_see() -> None:
    rng, words = random.Random(1), Words()
    decoded = 0
    for number in range(400):
        frame = request(rng, words, ALL, number).frame[4:]
        try:
            header = parse_request_header(frame)
            codec.decode(header.api_key, header.api_version, frame, header.body_offset)
        except MalformedFrame:
            continue
        decoded += 1
    assert 280 < decoded < 390


def test_a_seed_and_a_fuzzers_bytes_make_the_same_request_again() -> None:
    data = random.Random(2).randbytes(5000)
    for source in (lambda: random.Random(3), lambda: Drawn(data)):
        first, again = (request(source(), Words(), ALL, 1) for _ in range(2))
        assert first == again


def test_no_bytes_make_the_plainest_request() -> None:
    sent = request(Drawn(b""), Words(), ALL, 1)
    header = parse_request_header(sent.frame[4:])
    codec.decode(header.api_key, header.api_version, sent.frame[4:], header.body_offset)
    assert (sent.key, sent.version) == (ALL[0], APIS[ALL[0]].versions[1])
