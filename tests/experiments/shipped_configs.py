"""Shipped configs on a small scale: seconds in a computed world, not minutes."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from experiments.design.config import Experiment, parse
from experiments.design.trace_windows import with_trace
from experiments.design.world_config import WORLDS

CONFIGS: Final = sorted(Path("experiments/configs").glob("*.toml"))
_COST_US: Final = 300.0


def small(
    config: Path,
    *,
    blocks: int = 2,
    levels: int = 2,
    duration_s: float = 0.5,
    window_s: float = math.inf,
    incident_s: float = math.inf,
) -> Experiment:
    """Return a config with few blocks, short runs, and few levels of each factor.

    A run of a trace takes at most ``window_s``, an incident of a cluster
    ``incident_s``.
    """
    content: dict[str, Any] = tomllib.loads(config.read_text())
    header, workload = content["experiment"], content["workload"]
    if not WORLDS[header.get("world", "live")].computed:
        header["world"] = "virtual"
        names = [entry["name"] for entry in workload["traffic"]]
        content.setdefault("nominal", _costs(names))
    if "sessions" in content:
        content["sessions"] |= {"count": blocks, "rounds": 1}
    else:
        header["blocks"] = blocks
    longest_s = duration_s
    if "cluster" in content:
        longest_s = incident_s
    elif "trace" in workload:
        longest_s = window_s
    factor = min(1.0, longest_s / workload["duration_s"])
    for part in {"workload", "faults", "analysis"} & content.keys():
        content[part] = _shortened(content[part], factor)
    sweep = content.get("sweep", {})
    for each in sweep.get("factors", ()):
        del each["levels"][levels:]
    if sweep.get("design") == "listed":
        del sweep["points"][levels:]
    if sweep.get("design") == "bisection":
        sweep |= {"levels": [0.5, 1.2], "steps": levels - 1}
    return with_trace(parse(content), config)


def _costs(names: Iterable[str]) -> dict[str, Any]:
    """Return costs of requests in place of a live calibration."""
    costs = {name: {"mean_us": _COST_US} for name in names}
    return {"source": "assumed", "costs": costs}


def _shortened(part: Any, factor: float, *, is_time: bool = False) -> Any:
    """Return a part of a config with all times and durations scaled by a factor."""
    if isinstance(part, dict):
        return {
            key: _shortened(
                value,
                factor,
                is_time=key.endswith("_s") and not key.endswith("_per_s"),
            )
            for key, value in part.items()
        }
    if isinstance(part, list):
        return [_shortened(value, factor, is_time=is_time) for value in part]
    return part * factor if is_time else part
