"""Studies of one experiment in several worlds, built from values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_analysis.judging.study import Study
from tests.spark_analysis.studies import comparison_of, manifest_of, study_of

BLOCKS = 10
CALM = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.005, 0.995)
WILD = (0.2, 5.0, 0.3, 4.0, 0.5, 2.0, 0.25, 4.5, 0.6, 1.8)


def study_in(
    world: str,
    ratios: dict[str, float],
    noise: Sequence[float] = CALM,
) -> Study:
    """Make a study of control and produce; ``ratios`` are those of control."""
    arms: dict[str, dict[str, str]] = {name: {} for name in ("fifo", *ratios)}
    manifest = manifest_of(arms, ["control", "produce"], BLOCKS, world=world)
    point = replace(manifest.point, mean_request_ms=0.5, stretch=1.0)
    manifest = replace(manifest, points=(point,))
    values = {("control", "fifo"): [10.0 * it for it in CALM]}
    for arm, ratio in ratios.items():
        values["control", arm] = [10.0 * ratio * it for it in noise]
    for arm in arms:
        values["produce", arm] = [50.0 * it for it in CALM]
    return study_of([comparison_of(manifest, values)])
