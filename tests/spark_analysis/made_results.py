"""Results made by hand: the content of ``results.json`` without recordings or Spark."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spark_analysis.report.content.schema import Metric, Point, Results, Row, World

BASELINE, AGAIN = "fifo", "fifo-again"
P99 = "p99_ms"
METRIC: Metric = {
    "name": P99,
    "label": "p99",
    "unit": "ms",
    "quantile": 0.99,
    "margin": 0.05,
}


class Cell(NamedTuple):
    """A ratio to the baseline with its interval and verdict."""

    ratio: float | None
    low: float | None
    high: float | None
    verdict: str = "not significant"


BETTER = Cell(0.09, 0.08, 0.1, "better")
SAME = Cell(1.0, 0.98, 1.02, "equivalent")
OPEN = Cell(1.01, 0.9, 1.13)
WORSE = Cell(1.2, 1.1, 1.3, "worse")
REFUSED = Cell(None, None, None, "refused: the tail is too thin")
NOISE = Cell(1.001, 0.97, 1.03, "A/A")

# Cells by (class, arm).
Cells = Mapping[tuple[str, str], Cell]


def made(
    cells: Cells | Mapping[str, Cells],
    *,
    title: str = "A question",
    points: Sequence[Mapping[str, str]] = (),
    computed: Sequence[str] = ("virtual", "model"),
) -> Results:
    """Return results of one world ("live") or, by name, of several.

    Each cell is the same at every point.
    """
    worlds: Mapping[str, Cells]
    worlds = cells if isinstance(next(iter(cells)), str) else {"live": cells}  # type: ignore[assignment]
    first = next(iter(worlds.values()))
    classes = list(dict.fromkeys(name for name, _ in first))
    arms = list(dict.fromkeys(arm for _, arm in first))
    at: list[Point] = [
        {
            "point": " ".join(f"{k}={v}" for k, v in levels.items()),
            "levels": dict(levels),
        }
        for levels in points
    ]
    rows = [
        _row(world, point, class_name, arm, found.get((class_name, arm)), computed)
        for (world, found), point, class_name, arm in itertools.product(
            worlds.items(),
            [it["point"] for it in at] or [""],
            classes,
            [BASELINE, *arms, AGAIN],
        )
    ]
    return {
        "schema": 1,
        "name": "made",
        "title": title,
        "created": "2026-01-01T00:00:00Z",
        "baseline": BASELINE,
        "again": AGAIN,
        "alpha": 0.05,
        "margin_worlds": 0.25,
        "slo_share": 0.99,
        "primary": {"class_name": classes[0], "metric": P99},
        "metrics": [METRIC],
        "definitions": [],
        "classes": [
            {"name": name, "apis": ["produce"], "offered_per_s": 100.0}
            for name in classes
        ],
        "arms": [
            {
                "name": arm,
                "scheduler": arm,
                "settings": {},
                "again_of": BASELINE if arm == AGAIN else None,
                "factors": {},
            }
            for arm in [BASELINE, *arms, AGAIN]
        ],
        "worlds": [_world(name, name in computed) for name in worlds],
        "silent": {},
        "points": at,
        "rows": rows,
        "measures": [],
        "agreement": [],
        "theory": [],
        "effects": [],
        "pairs": [],
        "levels": [],
        "paired_costs": [],
        "curves": [],
        "phases": [],
        "queue": [],
    }


def _row(
    world: str,
    point: str,
    class_name: str,
    arm: str,
    cell: Cell | None,
    computed: Sequence[str],
) -> Row:
    if arm == BASELINE:
        cell = Cell(1.0, 1.0, 1.0, "baseline")
    elif cell is None:
        cell = NOISE
    value = None if cell.ratio is None else 10 * cell.ratio
    return {
        "world": world,
        "point": point,
        "class": class_name,
        "arm": arm,
        "metric": P99,
        "value": value,
        "low": None if value is None else value * 0.9,
        "high": None if value is None else value * 1.1,
        "ratio": cell.ratio,
        "ratio_low": cell.low,
        "ratio_high": cell.high,
        "p": None if world in computed else 0.001,
        "p_min": None if world in computed else 0.0001,
        "verdict": cell.verdict,
        "why": cell.verdict.partition(": ")[2],
        "secondary": False,
        "noise_low": NOISE.low,
        "noise_high": NOISE.high,
        "n": 1000,
        "blocks": 84,
        "sessions": 14,
        "effective": 44.0,
    }


def _world(name: str, computed: bool) -> World:
    return {
        "world": name,
        "deterministic": computed,
        "seed": 1,
        "created": "2026-01-01T00:00:00Z",
        "commit": "0" * 12,
        "config_sha256": "0" * 12,
        "sessions": 14,
        "sessions_planned": 14,
        "rounds": 84,
        "runs": 700,
        "discarded": {"the generator was late": 2},
        "requests": 100_000,
        "window_s": [0.0, 1.0],
        "machine": "a processor, 2 CPUs",
        "p_min": 0.0001,
        "cautions": [],
    }
