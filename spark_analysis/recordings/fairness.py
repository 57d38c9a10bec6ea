"""Fairness between the flows of a class, over windows of time.

In a window a flow *wants* the work of its present requests: those not served before the
window, and those that arrive in it. A flow is *given* the work of the requests that
complete in the window. The work of a request is its service time, counted as a whole in
the window in which its handler completes. A request that was never served has no
service time and does not count.

The fair share of a flow is max-min: min(wanted, L), with a level L such that the shares
add up to all work given. With the flows in ascending order of ``wanted``, let
``L_i = (given in all - wanted of those before i) / (flows from i on)``. L_i rises up to
the first flow that wants more than L_i, and falls from there on, so L is the largest
L_i. (L_{i+1} - L_i is (L_i - wanted_i) / (flows after i).)

Jain's index of a window is ``(sum x)^2 / (n sum x^2)`` over the flows that want work,
with x = given / fair share (Jain, Chiu, Hawe 1984). It is 1 if all have their fair
share, and k / n if k of n equal flows are given all work. The service lag is the
largest fair share minus given work. Windows in which fewer than two flows want work, or
no work was given, have neither.

Sums of integers, and of floating-point numbers in ascending order, do not depend on the
partitioning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_analysis.recordings.latency_histogram import CELL
from spark_analysis.recordings.load import aggregates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RUN: Final = (*CELL, "session", "run_id")
_SUM: Final = "aggregate({0}, 0D, (total, it) -> total + {1})"


def fairness(requests: DataFrame) -> DataFrame:
    """Return ``jain``, the mean index, and ``lag_ns``, by cell and session.

    ``requests`` are all rows, the warm-up included, with ``window_start``,
    ``window_end`` and the width ``fairness_ns``. Only whole windows count.
    """
    windows = _shares(_wanted(_by_flow(requests)))
    sum_x, squares = _SUM.format("x", "it"), _SUM.format("x", "it * it")
    index = f"pow({sum_x}, 2) / (size(x) * {squares})"
    mean = f"{_SUM.format('jain', 'it')} / size(jain) AS jain"
    return (
        windows.groupBy(*_RUN, "slot")
        .agg(
            *aggregates(
                {
                    "x": "array_sort(collect_list(given / fair))",
                    "lag_ns": "greatest(max(fair - given), 0D)",
                }
            )
        )
        .groupBy(*CELL, "session")
        .agg(
            *aggregates(
                {
                    "jain": f"array_sort(collect_list({index}))",
                    "lag_ns": "max(lag_ns)",
                }
            )
        )
        .selectExpr(*CELL, "session", mean, "lag_ns")
    )


def _by_flow(requests: DataFrame) -> DataFrame:
    """Return the work wanted by and given to each flow by window, if there is any."""
    asked, given = _slot("intended_ns"), _slot("local_done_ns")
    events = (
        f"inline(array("
        f"named_struct('slot', {asked}, 'asked', service_ns, 'given', 0L), "
        f"named_struct('slot', {given}, 'asked', 0L, 'given', service_ns)))"
    )
    slots = "(window_end - window_start) DIV fairness_ns AS slots"
    return (
        requests.where("service_ns > 0 AND local_done_ns >= intended_ns")
        .selectExpr(*_RUN, "flow", slots, events)
        .groupBy(*_RUN, "flow", "slots", "slot")
        .agg(*aggregates({"asked": "sum(asked)", "given": "sum(given)"}))
    )


def _slot(stamp: str) -> str:
    """Return SQL for the number of the window of an instant, below 0 before the first.

    SQL's DIV rounds to zero.
    """
    since = f"({stamp} - window_start)"
    return f"({since} - pmod({since}, fairness_ns)) DIV fairness_ns"


def _wanted(by_flow: DataFrame) -> DataFrame:
    """Return each flow's wanted and given work, in every window in which it waits."""
    over = "OVER (PARTITION BY run_id, class, flow ORDER BY slot"
    here = "IF(it = slot, {0}, {1})"
    wanted = here.format("waiting + asked", "waiting + asked - given")
    given = here.format("given", "0L")
    return (
        by_flow.selectExpr(
            "*",
            f"sum(asked - given) {over} ROWS UNBOUNDED PRECEDING) - (asked - given) "
            "AS waiting",
            f"coalesce(lead(slot) {over}), slot + 1) AS following",
        )
        .selectExpr(
            "*", "greatest(slot, 0L) AS low", "least(following, slots) - 1 AS high"
        )
        .where("low <= high")
        .selectExpr(
            *_RUN,
            "flow",
            "inline(transform(sequence(low, high), it -> named_struct("
            f"'slot', it, 'wanted', {wanted}, 'given', {given})))",
        )
        .where("wanted > 0")
    )


def _shares(flows: DataFrame) -> DataFrame:
    """Return every flow's fair share in each window that has an index."""
    window = "PARTITION BY run_id, class, slot"
    ascending = f"OVER ({window} ORDER BY wanted, flow"
    before = f"sum(wanted) {ascending} ROWS UNBOUNDED PRECEDING) - wanted"
    placed = flows.selectExpr(
        "*",
        f"count(*) OVER ({window}) AS flows",
        f"sum(given) OVER ({window}) AS whole",
        f"{before} AS before",
        f"row_number() {ascending}) AS place",
    ).where("flows > 1 AND whole > 0")
    level = f"max((whole - before) / (flows - place + 1)) OVER ({window})"
    return placed.selectExpr("*", f"least(double(wanted), {level}) AS fair")
