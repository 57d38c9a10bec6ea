"""Mutation quotas, compared with Kafka's own ``ControllerMutationQuotaManager``.

`KafkaQuotas.java` ran the classes of Kafka 3.9.1 with random events.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from broker.quotas.entity import DEFAULT
from broker.quotas.mutation_quota import MutationQuota
from broker.requests.windowed_rate import Windows

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka-mutations.tsv").read_text().splitlines()
]


def test_every_refusal_and_throttle_time_is_kafkas() -> None:
    quota, refused, throttled = MutationQuota(Windows(count=1)), 0, 0
    for number, (what, *row) in enumerate(ROWS):
        if what == "new":
            quota = MutationQuota(
                Windows(count=int(row[0]), size_ms=int(row[1]) * 1000)
            )
        elif what == "bound":
            quota.put(f"users/{row[0]}", float(row[1]))
        else:
            at_ms, user, count, is_strict = int(row[0]), row[1], int(row[2]), row[3]
            found = quota.record(user, "c", count, at_ms, is_strict=is_strict == "true")
            expected = (row[4] == "true", int(row[5]))
            is_refused = is_strict == "true" and found is not None
            assert (is_refused, found or 0) == expected, (number, row)
            refused += is_refused
            throttled += bool(found) and not is_refused
    assert refused > 50
    assert throttled > 50


def strict(quota: MutationQuota, client_id: str, count: int, at_ms: int) -> int | None:
    return quota.record("u", client_id, count, at_ms, is_strict=True)


def test_a_topic_larger_than_the_burst_passes_and_the_next_one_waits() -> None:
    """KIP-599's example: 5 per second, a burst of 500, and 560 at once wait 12 s."""
    quota = MutationQuota(Windows(count=100))
    quota.put("users/u", 5)
    assert strict(quota, "c", 560, 0) is None
    assert strict(quota, "c", 1, 0) == 12_000
    assert strict(quota, "c", 1, 12_000) is None
    # A refused request takes no tokens.
    assert strict(quota, "c", 1, 12_000) == 200


def test_a_client_that_waits_as_told_has_its_rate_in_the_long_run() -> None:
    quota, bound, now_ms, created = MutationQuota(Windows()), 3.0, 0, 0
    quota.put("users/u", bound)
    while created < 5000:
        delay_ms = strict(quota, "c", 7, now_ms)
        if delay_ms is None:
            created += 7
        else:
            # Delays below half a millisecond are rounded to 0, as in Kafka.
            now_ms += max(delay_ms, 1)
    assert created == pytest.approx(11 * bound + bound * now_ms / 1000, abs=7)


def test_no_bound_counts_nothing_and_a_bound_of_nothing_refuses_after_the_first() -> (
    None
):
    quota = MutationQuota(Windows())
    assert strict(quota, "c", 10**9, 0) is None
    assert len(quota) == 0
    quota.put("users/u", math.inf)
    assert strict(quota, "c", 10**9, 0) is None
    for bound in (0.0, -1.0):
        quota = MutationQuota(Windows())
        quota.put("users/u", bound)
        assert strict(quota, "c", 1, 0) is None
        assert strict(quota, "c", 1, 10**9) == 11_000


def test_full_buckets_are_forgotten_and_others_are_not() -> None:
    quota = MutationQuota(Windows())
    quota.put(f"users/u/clients/{DEFAULT}", 1)
    # The bucket is 100,000 tokens below zero and takes more than a day to fill.
    assert strict(quota, "deep", 100_011, 0) is None
    for number in range(5000):
        strict(quota, f"c{number}", 5, number * 100)
        # A bucket fills in at most 11 s; in that time there are 110 clients.
        assert len(quota) <= 112
    assert strict(quota, "deep", 1, 500_000) == 99_500_000
