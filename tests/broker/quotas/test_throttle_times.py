"""Client quotas, compared with Kafka's own ``ClientQuotaManager`` event by event.

`KafkaQuotas.java` ran the classes of Kafka 3.9.1 with random entities, quotas and
values. The naive model below is independent of both and keeps every event.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from urllib.parse import unquote

import pytest

from broker.quotas.client_quotas import ClientQuota
from broker.quotas.entity import DEFAULT, is_entity, names_of, path_of, user_of
from broker.requests.windowed_rate import Windows, delay_ms
from tests.seeds import seeds

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka-quotas.tsv").read_text().splitlines()
]
INFINITE = 1e300


def test_every_throttle_time_is_kafkas() -> None:
    quota, window_ms, is_request, compared = (
        ClientQuota(Windows(count=2)),
        1000,
        False,
        0,
    )
    for number, (what, *row) in enumerate(ROWS):
        if what == "new":
            is_request = row[0] == "request"
            window_ms = int(row[2]) * 1000
            quota = ClientQuota(Windows(count=int(row[1]), size_ms=window_ms))
        elif what == "bound":
            quota.put(row[0], float(row[1]))
        elif what == "most":
            found = quota.allowance(unquote(row[0]), unquote(row[1]))
            assert min(found, INFINITE) == min(float(row[2]), INFINITE), number
        else:
            user, client = unquote(row[1]), unquote(row[2])
            found = quota.record(user, client, float(row[3]), int(row[0]))
            if is_request:
                # Kafka limits only request throttle times (ClientRequestQuotaManager).
                found = min(found, window_ms)
            assert found == int(row[4]), (number, row)
            compared += found > 0
    assert compared > 200


# ---- the naive model ----


class Naive:
    """Rate of one client with one quota, computed from the list of all events."""

    def __init__(self, windows: int, window_ms: int, bound: float) -> None:
        self.windows, self.window_ms, self.bound = windows, window_ms, bound
        # Start of each sample, with its events; a sample is never reused.
        self.samples: list[tuple[int, list[tuple[int, float]]]] = []

    def record(self, value: float, now_ms: int) -> int:
        if not self.samples or now_ms - self.samples[-1][0] >= self.window_ms:
            self.samples.append((now_ms, []))
        self.samples[-1][1].append((now_ms, value))
        reach_ms = self.windows * self.window_ms
        alive = [
            (start_ms, events)
            for start_ms, events in self.samples[-self.windows :]
            if now_ms - events[-1][0] < reach_ms
        ]
        span_ms = now_ms - alive[0][0]
        span_ms += self.window_ms * max(self.windows - 1 - span_ms // self.window_ms, 0)
        total = sum(value for _, events in alive for _, value in events)
        over = total / (span_ms / 1000) - self.bound
        return max(math.floor(over / self.bound * span_ms + 0.5), 0)


@pytest.mark.parametrize("seed", seeds(12, 30))
def test_a_rate_is_that_of_all_its_events(seed: int) -> None:
    rng = random.Random(seed)
    windows, window_ms = rng.randint(2, 12), rng.choice((500, 1000, 2000))
    bound, now_ms = rng.randint(100, 5000), rng.randint(0, 10**9)
    quota, naive = (
        ClientQuota(Windows(count=windows, size_ms=window_ms)),
        Naive(windows, window_ms, bound),
    )
    quota.put("users/u", bound)
    for _ in range(300):
        now_ms += rng.choice((0, 1, rng.randint(0, window_ms), rng.randint(0, 20_000)))
        value = rng.randint(0, 4 * bound)
        found = quota.record("u", "c", value, now_ms)
        assert found == naive.record(value, now_ms), f"seed {seed}"


def test_a_client_that_waits_as_told_has_its_rate_in_the_long_run() -> None:
    """Closed form: after the first burst, the rate in bytes per second is the quota."""
    quota, bound, size, now_ms, sent = ClientQuota(Windows()), 1000, 1500, 0, 0
    quota.put("clients/<default>", bound)
    for _ in range(1000):
        sent += size
        now_ms += quota.record("u", "c", size, now_ms)
    burst = quota.allowance("u", "c")
    assert burst == 10 * bound
    assert abs(sent - bound * now_ms / 1000) <= burst + size


def test_no_delay_is_enough_for_a_bound_of_nothing() -> None:
    assert delay_ms(1.0, 0, 10_000) == delay_ms(1.0, -1, 10_000) == 10_000
    assert delay_ms(0, 0, 10_000) == 0
    assert delay_ms(1e300, 1e-300, 10_000) == 2**31 - 1


# ---- precedence of quotas ----

# The order in Kafka's documentation (KIP-55), the most specific entity first.
ORDER = (
    "users/u/clients/c",
    f"users/u/clients/{DEFAULT}",
    "users/u",
    f"users/{DEFAULT}/clients/c",
    f"users/{DEFAULT}/clients/{DEFAULT}",
    f"users/{DEFAULT}",
    "clients/c",
    f"clients/{DEFAULT}",
)


def test_the_most_specific_entity_applies() -> None:
    for present in range(1 << len(ORDER)):
        quota = ClientQuota(Windows())
        set_here = [at for at in range(len(ORDER)) if present >> at & 1]
        for at in set_here:
            quota.put(ORDER[at], at + 1)
        for entity in ("users/other", "clients/other", "users/other/clients/c"):
            quota.put(entity, 99)
        expected = set_here[0] + 1 if set_here else math.inf
        assert quota.applies("u", "c")[1] == expected, bin(present)


def test_a_bound_that_is_removed_uncovers_the_next() -> None:
    quota = ClientQuota(Windows())
    for at, entity in enumerate(ORDER):
        quota.put(entity, at)
    for at, entity in enumerate(ORDER):
        assert quota.applies("u", "c")[1] == at
        quota.put(entity, None)
    assert quota.applies("u", "c")[1] == math.inf
    assert not quota.is_set


def test_clients_of_one_user_share_the_users_rate_and_not_a_clients() -> None:
    quota = ClientQuota(Windows())
    quota.put("users/u", 100)
    assert not quota.record("u", "a", 1000, 0)
    assert quota.record("u", "b", 1000, 0) == 10_000
    assert not quota.record("v", "b", 10**9, 0)
    quota = ClientQuota(Windows())
    quota.put(f"users/u/clients/{DEFAULT}", 100)
    assert not quota.record("u", "a", 1000, 0)
    assert not quota.record("u", "b", 1000, 0)
    assert quota.record("u", "b", 1000, 0) == 10_000


def test_clients_with_ever_new_ids_are_forgotten() -> None:
    quota = ClientQuota(Windows())
    quota.put(f"clients/{DEFAULT}", 1)
    for number in range(5000):
        quota.record("u", f"c{number}", 5, number * 100)
        # The windows cover 11 s, in which there are 110 clients.
        assert len(quota) <= 111


# ---- entities ----


@pytest.mark.parametrize(
    ("names", "path"),
    [
        ({"user": "a"}, "users/a"),
        ({"user": None}, "users/<default>"),
        ({"user": "<default>"}, "users/%3Cdefault%3E"),
        (
            {"user": "a/b ~*", "client-id": "é+"},
            "users/a%2Fb%20%7E%2A/clients/%C3%A9%2B",
        ),
        ({"client-id": None, "user": None}, "users/<default>/clients/<default>"),
        ({"client-id": "a-b_c.d"}, "clients/a-b_c.d"),
        ({"ip": "10.0.0.1"}, "ips/10.0.0.1"),
        ({"ip": None}, "ips/<default>"),
    ],
)
def test_paths_are_those_of_kafkas_znodes(
    names: dict[str, str | None], path: str
) -> None:
    """The encoding is Kafka's ``Sanitizer``, verified with the jar of Kafka 3.9.1."""
    assert path_of(names) == path
    assert names_of(path) == names
    assert is_entity(path)
    single = list(names) == ["user"] and names["user"] is not None
    assert user_of(path) == (names["user"] if single else None)


@pytest.mark.parametrize(
    "path", ["", "users", "users/", "topics/t", "clients/c/users/u", "users/a/b"]
)
def test_other_paths_are_no_entities(path: str) -> None:
    assert not is_entity(path)
