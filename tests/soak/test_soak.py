"""A soak of a minute: no record is lost or reordered, and no resource is kept."""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path

import pytest

from tests.soak import clients
from tests.soak.clients import FROZEN, Clients
from tests.soak.soak import Sample, kept, soak

CALM = Sample(minute=0, rss_mb=80, descriptors=60, tasks=12, threads=4, logs=10)


@pytest.mark.slow
@pytest.mark.live
def test_a_minute_of_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    assert soak(tmp_path, 1, seed=7, rest_s=40) == []


@pytest.mark.parametrize(
    "more",
    [
        {"rss_mb": 110},
        {"descriptors": 90},
        {"tasks": 13},
        {"threads": 13},
        {"logs": 11},
    ],
    ids=str,
)
def test_growing_objects_are_reported(more: dict[str, int]) -> None:
    assert len(kept(CALM, dataclasses.replace(CALM, **more))) == 1
    assert kept(CALM, CALM) == []


def test_clients_that_stand_still_are_replaced_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Clients(port=0, seed=0)
    speaks = """print('{"done": {"x": 1}, "faults": []}', flush=True); """
    held.command = [sys.executable, "-c", speaks + "import sys; sys.stdin.read()"]
    held.start()
    held.look()
    assert held.rounds == 1
    while not held.done:
        threading.Event().wait(0.01)
    monkeypatch.setattr(clients, "_SILENCE_S", 0.0)
    held.look()
    monkeypatch.undo()
    held.stop()
    assert (held.rounds, held.faults) == (2, [])
    assert held.done == {"x": 2, FROZEN: 1}
