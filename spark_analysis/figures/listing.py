"""Which figures a report has, in the order they are read, with title and caption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Template
from typing import Final, NamedTuple

from matplotlib.figure import Figure

from spark_analysis.comparison import Comparison
from spark_analysis.figures import latency, over_time, phases, ratios


class Plot(NamedTuple):
    """A figure to draw: title, caption, and how."""

    title: str
    caption: str
    draw: Callable[[Comparison], Figure]


# $quantile is the headline's, $tail the one beyond which requests count as slowest.
_PLOTS: Final[Mapping[str, Plot]] = {
    "ccdf": Plot(
        "How slow, how often",
        "Share of requests that took longer than a given time, on logarithmic scales: "
        "further left is faster, and the right end of a curve is its tail. A curve "
        "that stops early lost the requests below it.",
        latency.exceedance_curves,
    ),
    "quantiles": Plot(
        "The $quantile and how well it is known",
        "Pooled $quantile with its interval over blocks; a missing dot is a tail too "
        "thin to show.",
        latency.quantiles,
    ),
    "ratios": Plot(
        "Against $baseline",
        "Ratio to the baseline with its interval: left of 1 is faster. Inside the "
        "shaded margin arms count as the same; grey dots are undecided.",
        ratios.forest,
    ),
    "phases": Plot(
        "Where the time goes",
        "Mean time by phase: all answered requests, and those beyond the $tail. What a "
        "scheduler can change is the request queue; what admission can change is "
        "blocked and unread.",
        phases.stacked,
    ),
    "queue": Plot(
        "The request queue over time",
        "Requests in the queue, median over blocks with the range between blocks; "
        "dashed: requests that a full queue kept out.",
        over_time.queue,
    ),
    "blocks": Plot(
        "Block by block",
        "Each thin line is one block: the same requests under every arm, each dot one "
        "run's $quantile. Parallel lines mean that the effect is the same whatever the "
        "requests.",
        ratios.block_lines,
    ),
    "drift": Plot(
        "Did the machine change while we looked?",
        "Each run's $quantile against its arm's median, in the order in which they "
        "ran. A slope would be the machine's doing, not a scheduler's.",
        over_time.drift,
    ),
}


def plots(comparison: Comparison) -> Mapping[str, Plot]:
    """Return every figure of a report by name, its words filled in."""
    words = {
        "quantile": comparison.headline.label,
        "tail": comparison.tail_metric.label,
        "baseline": comparison.manifest.baseline,
    }
    return {
        name: Plot(
            Template(plot.title).substitute(words),
            Template(plot.caption).substitute(words),
            plot.draw,
        )
        for name, plot in _PLOTS.items()
    }
