"""Rows of `make bench` for the console: pairs of blocks, and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from bench import console
from bench.console import Console


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Blocks in order: 2 ms with a console, 1 ms without, times a common factor."""
    order: list[str] = []
    is_watched = [False]

    @contextmanager
    def watched(broker: Any) -> Iterator[Any]:
        is_watched[0] = True
        yield SimpleNamespace(peak_mb=75.0)
        is_watched[0] = False

    def block_ms(broker: Any) -> float:
        order.append("with" if is_watched[0] else "without")
        neighbour = 1 + (len(order) - 1) // 2 % 3
        return neighbour * (2.0 if is_watched[0] else 1.0)

    monkeypatch.setattr(console, "_watched", watched)
    monkeypatch.setattr(console, "_block_ms", block_ms)
    return order


def test_blocks_with_and_without_a_console_are_paired(blocks: list[str]) -> None:
    broker: Any = object()
    memory, load = console._load(broker)
    assert (memory.ours, memory.ratio) == (75, 2)
    assert blocks[:4] == ["with", "without", "without", "with"]
    assert (load.ratio, load.ratio_low, load.ratio_high) == (0.5, 0.5, 0.5)
    assert load.as_json()["ratio_low"] == 0.5
    assert "ratio_low" not in memory.as_json()


def test_the_first_page_is_that_of_a_new_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []

    def opened(broker: Any) -> Any:
        started.append(0)
        return nullcontext(Console(1, "address"))

    def read_s(address: str, page: str) -> float:
        started[-1] += 1
        if started[-1] == 1:
            assert page == "cluster"
            return 0.5
        return 0.25 if page.startswith("topics") else 0.1

    monkeypatch.setattr(console, "_console", opened)
    monkeypatch.setattr(console, "read_s", read_s)
    broker: Any = object()
    first, slowest = console._pages(broker)
    assert (first.ours, first.theirs, first.ratio) == (0.5, 1, 2)
    assert (slowest.ours, slowest.ratio) == (0.25, 4)
    assert len(started) == 5
