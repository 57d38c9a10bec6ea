"""The first error of a response, at any position and in every version."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import fields
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import response_type
from broker.protocol.wire.first_error import first_error
from broker.protocol.wire.introspect import kind_of

NONE = ErrorCode.none
ERRORS = [each for each in ErrorCode if each is not NONE]
SERVED = {ApiKey(key).name: (int(key), api.served) for key, api in APIS.items()}


def told(struct: type[Any], codes: Iterator[ErrorCode], rows: int = 2) -> Any:
    """Return a response, or a row of one, with ``rows`` rows in each of its arrays.

    Codes are taken in the order of priority: first the response's own error.
    """
    answer = SimpleNamespace()
    if "error_code" in {field.name for field in fields(struct)}:
        answer.error_code = next(codes)
    for field in fields(struct):
        kind = kind_of(field)
        if kind.struct is not None and kind.is_array:
            inner = [told(kind.struct, codes, rows) for _ in range(rows)]
            setattr(answer, field.name, inner)
        elif kind.struct is not None:
            setattr(answer, field.name, told(kind.struct, codes, rows))
        elif field.name != "error_code":
            setattr(answer, field.name, None)
    return answer


def driven(steps: Generator[None, None, int]) -> tuple[int, int]:
    """Return the number of yields, and the result."""
    for yields in count():
        try:
            next(steps)
        except StopIteration as done:
            return yields, done.value
    raise AssertionError


@pytest.mark.parametrize("api", SERVED)
def test_the_first_error_is_found_at_every_position(api: str) -> None:
    key, served = SERVED[api]
    for version in served:
        struct = response_type(key, version)
        codes = iter(ERRORS)
        told(struct, codes)
        places = len(ERRORS) - len(list(codes))
        for place in range(places):
            answer = told(struct, iter([*[NONE] * place, *ERRORS]))
            found = driven(first_error(key, version, answer))
            assert found == (0, ERRORS[0].value), (version, place)
        sound = told(struct, iter([NONE] * places))
        assert driven(first_error(key, version, sound)) == (0, 0), version


@pytest.mark.parametrize("api", SERVED)
def test_an_answer_of_no_rows_has_its_own_error_or_none(api: str) -> None:
    key, served = SERVED[api]
    for version in served:
        for code in (NONE, ERRORS[0]):
            answer = told(response_type(key, version), repeat(code), rows=0)
            own = getattr(answer, "error_code", NONE).value
            assert driven(first_error(key, version, answer)) == (0, own), version


def test_there_are_places_for_errors_within_errors() -> None:
    """Without such positions the tests above would check nothing."""
    codes = count()
    told(response_type(ApiKey.METADATA, 12), iter(lambda: ERRORS[next(codes)], None))
    assert next(codes) == 2 + 2 * 2


def test_rows_without_errors_are_not_looked_through() -> None:
    answer = SimpleNamespace(error_code=NONE, api_keys=[object()] * 2_000)
    assert driven(first_error(ApiKey.API_VERSIONS, 3, answer)) == (0, 0)


def test_the_first_error_is_searched_in_steps() -> None:
    rows = [SimpleNamespace(error_code=NONE, partitions=()) for _ in range(2_000)]
    rows[-1].error_code = ErrorCode.leader_not_available
    found = driven(first_error(ApiKey.METADATA, 9, SimpleNamespace(topics=rows)))
    assert found == (2_000 // 512, ErrorCode.leader_not_available.value)
