"""The one-minute rate compared with closed forms of an exponential average."""

from __future__ import annotations

import math

import pytest

from broker.observation.minute_rate import MinuteRate

S = 1_000_000_000


def test_the_first_five_seconds_are_taken_as_they_are() -> None:
    rate = MinuteRate(0)
    for second in range(5):
        rate.mark(second * S)
        rate.mark(second * S)
    assert rate.per_s(5 * S - 1) == 0
    assert rate.per_s(5 * S) == 2


@pytest.mark.parametrize("look_s", [1, 7, 60])
def test_a_minute_of_silence_leaves_one_in_e(look_s: int) -> None:
    rate = MinuteRate(0)
    for _ in range(10):
        rate.mark(S)
    # The result does not depend on how often the rate is read.
    for second in range(5, 65, look_s):
        rate.per_s(second * S)
    assert rate.per_s(65 * S) == pytest.approx(2 / math.e)


def test_a_new_pace_is_come_up_to() -> None:
    rate = MinuteRate(0)
    for second in range(120):
        rate.mark(second * S)
    assert rate.per_s(120 * S) == pytest.approx(1)
    for tenth in range(600):
        rate.mark(120 * S + tenth * S // 10)
    # Exponential approach from the old rate, 1/s, to the new one, 10/s.
    assert rate.per_s(180 * S) == pytest.approx(10 - 9 / math.e)
