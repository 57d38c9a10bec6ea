"""Mean time of a timed reference loop between two input lines."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator

import pytest

from experiments.processes import idle_probe


def test_the_mean_is_over_the_turns_between_two_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Turns before the first line do not count; each pair of lines gets one answer."""
    took_ns = itertools.chain([900] * 30, [100] * 24 + [400] * 6, [900] * 100)
    # A line arrives after each 30 turns; after the second line the input ends.
    readable = itertools.cycle([False] * 30 + [True])
    lines = iter([b"\n", b"\n", b""])
    monkeypatch.setattr(idle_probe, "_loop_ns", lambda: next(took_ns))
    monkeypatch.setattr(idle_probe, "_readable_after_a_nap", lambda: next(readable))
    monkeypatch.setattr(idle_probe.os, "read", lambda fd, size: next(lines))
    monkeypatch.setattr(idle_probe.sys, "stdin", _Input())
    idle_probe.answer()
    assert capsys.readouterr().out == "160\n"


def test_under_a_load_that_leaves_no_cpu_some_turns_are_timed_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times: Iterator[int] = iter(range(1, 1000))
    monkeypatch.setattr(idle_probe, "_loop_ns", lambda: next(times))
    monkeypatch.setattr(idle_probe, "_readable_after_a_nap", lambda: True)
    assert idle_probe.mean_ns() == round(sum(range(1, 21)) / 20)


class _Input(io.StringIO):
    def fileno(self) -> int:
        return 0
