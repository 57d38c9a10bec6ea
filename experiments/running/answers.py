"""A hash of what an experiment's first trials answer: is it what it was?

Runs of the model world are cheap and the same on any machine, so the hash of a few of
them stands for all: where it is as it was, so are, very likely, the findings.
"""

from __future__ import annotations

import hashlib
import io
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from experiments.design.config import Experiment
from experiments.design.points import points
from experiments.running.trials import Replayer, Work
from experiments.running.worlds import make_world
from experiments.worlds.world import Trial

_WORLD: Final = "model"
_DIGITS: Final = 12


def answers(experiment: Experiment) -> str:
    """Return the hash of when each request was answered, and how, in two trials.

    They are of the first block at the first point in the model world, under the first
    two arms that are compared with each other, else the first two. Cost: that of two
    runs.
    """
    (point, *_) = points(experiment.with_world(_WORLD))
    there = point.experiment
    asked = [*there.analysis.compare, [arm.name for arm in there.arms]]
    replayer, digest = Replayer(make_world(_WORLD, lambda: None)), hashlib.sha256()
    for name in asked[0][:2]:
        trial = Trial(experiment=there, block=0, arm=there.arm(name), order=0)
        found = replayer.run(Work(trial=trial, with_trace=False)).requests
        assert isinstance(found, bytes), "runs of the model are recorded"
        rows = pq.read_table(
            io.BytesIO(found), columns=["request_id", "client_done_ns", "outcome"]
        ).sort_by("request_id")
        done_ns = rows["client_done_ns"].fill_null(-1).to_numpy()
        digest.update(done_ns.astype(np.int64).tobytes())
        digest.update("\0".join(rows["outcome"].to_pylist()).encode())
    return digest.hexdigest()[:_DIGITS]
