"""A minimal sweep of two factors with two levels each, in the model world."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from experiments.design.config import Experiment, parse

CONFIG = """
[experiment]
name = "small"
seed = 11
blocks = 2
baseline = "fifo"
world = "model"

[workload]
duration_s = DURATION

[[workload.traffic]]
name = "control"
connections = 4
arrivals = { kind = "poisson", rate_per_s = 100.0 }
request = { api = "leader-and-isr" }
service = { kind = "exponential", mean_us = 500.0 }

[[workload.traffic]]
name = "produce"
connections = 40
arrivals = { kind = "poisson", rate_per_s = 1000.0 }
request = { api = "produce" }
service = { kind = "pareto", alpha = 1.5, low_us = 200.0, high_us = 20000.0 }

[[arms]]
name = "fifo"
scheduler = "fifo"

[[arms]]
name = "2dfq"
scheduler = "2dfq"

[sweep]
design = "factorial"

[[sweep.factors]]
name = "load"
levels = [
    { name = "low", set = { "workload.traffic.produce.arrivals.rate_per_s" = 500.0 } },
    { name = "high", set = { "workload.traffic.produce.arrivals.rate_per_s" = 900.0 } },
]

[[sweep.factors]]
name = "threads"
levels = [
    { name = "1", set = { "broker.set.num.io.threads" = 1 } },
    { name = "8", set = { "broker.set.num.io.threads" = 8 } },
]
"""


def config_file(directory: Path, *, duration_s: float = 0.3) -> Path:
    path = directory / "small.toml"
    path.write_text(CONFIG.replace("DURATION", str(duration_s)))
    return path


def built(**sections: Any) -> Experiment:
    content = tomllib.loads(CONFIG.replace("DURATION", "0.3"))
    return parse({**content, **sections})
