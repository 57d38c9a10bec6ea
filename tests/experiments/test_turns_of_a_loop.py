"""Times of a fixed loop on a machine that is slow for a while."""

from __future__ import annotations

import pytest

from experiments.processes import idle_probe


def test_a_machine_that_is_slow_for_some_turns_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the median of those in a row: one that an interrupt met is none."""
    took_ns = [100] * 1000
    took_ns[120] = 90_000
    took_ns[700:760] = [160] * 60
    left = iter(took_ns)
    turns = idle_probe.Turns()
    until = iter([False] * 999 + [True])
    monkeypatch.setattr(idle_probe, "_loop_ns", lambda: next(left))
    monkeypatch.setattr(idle_probe, "_readable_after_a_nap", lambda: next(until))
    instants = iter(range(10_000))
    monkeypatch.setattr(idle_probe.time, "monotonic_ns", lambda: next(instants))
    turns.run_until_told()
    mean_ns = round(sum(took_ns[:999]) / 999)
    assert turns.times_ns(0) == {"mean_ns": mean_ns, "slowest_ns": 160}
    # The fifteenth span was over at 14; what comes after it is as before.
    assert turns.times_ns(14)["slowest_ns"] == 160
    assert turns.times_ns(15)["slowest_ns"] == 100
