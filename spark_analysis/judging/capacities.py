"""Capacity at an objective: the load up to which an arm meets it.

A class meets its objective at a load if at least ``slo_share`` of its requests have a
good answer within it. The capacity of a session is the load where its share of good
answers, on a line between neighbouring loads, first falls below that. It is 0 if the
lowest load misses, and infinite if the highest does not. The loads are those of a
bisection (``[sweep] design = "bisection"``), which are dense around each arm's
capacity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.measurement import Measurement
from spark_analysis.judging.measures import measure_cell
from spark_analysis.judging.metrics import ATTAINMENT, CAPACITY
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.latency_histogram import GroupKey

# Shares of good answers by load.
Shares = dict[float, float]


def capacity_of(shares: Mapping[float, float], wanted: float) -> float:
    """Return the load at which the share of good answers falls below ``wanted``."""
    loads = sorted(shares)
    if shares[loads[0]] < wanted:
        return 0.0
    for low, high in pairwise(loads):
        if shares[high] < wanted:
            part = (shares[low] - wanted) / (shares[low] - shares[high])
            return low + (high - low) * part
    return math.inf


def capacity_cells(
    manifest: Manifest, measured: Mapping[int, Measurement]
) -> Iterator[CellSessions]:
    """Yield the capacity of every class with an objective, under every arm.

    Only for a bisection. A session counts if it has requests at all loads.
    """
    sweep = manifest.config.get("sweep") or {}
    if sweep.get("design") != "bisection":
        return
    objectives = {
        entry.name
        for point in manifest.points
        for entry in point.classes
        if entry.slo_ns is not None
    }
    found: dict[GroupKey, dict[int, Shares]] = {}
    counts: dict[tuple[GroupKey, int], int] = {}
    for index, of in measured.items():
        load = float(manifest.points[index].levels[sweep["factor"]])
        for cell in of.measures:
            if cell.metric != ATTAINMENT or cell.class_name not in objectives:
                continue
            key = GroupKey(0, cell.class_name, cell.arm)
            for session, share, count in zip(
                cell.sessions, cell.values, cell.counts, strict=True
            ):
                found.setdefault(key, {}).setdefault(session, {})[load] = share
                counts[key, session] = counts.get((key, session), 0) + count
    for key, sessions in found.items():
        values = {
            session: capacity_of(shares, manifest.options.slo_share)
            for session, shares in sessions.items()
            if len(shares) == len(measured)
        }
        of_session = {session: counts[key, session] for session in values}
        yield from measure_cell("", key, CAPACITY, values, of_session)
