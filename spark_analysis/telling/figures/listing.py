"""Which figures a report has, in the order they are read, with title and caption."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from string import Template
from typing import Final, NamedTuple

from matplotlib.figure import Figure

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.study import Study
from spark_analysis.telling.figures import (
    factor_effects,
    latency,
    over_time,
    phase_bars,
    ratio_forest,
    sweep_maps,
)
from spark_analysis.telling.sentences.numbers import percent


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
        "further left is faster, and the right end of a curve is its tail. The band is "
        "an interval over runs, at each time by itself; a faint curve is a share that "
        "may as well be none. A curve that stops early lost the requests below it.",
        latency.exceedance_curves,
    ),
    "quantiles": Plot(
        "The $quantile and how well it is known",
        "Pooled $quantile with its interval over blocks, each by itself; an arrow goes "
        "on beyond the picture; a missing dot is a tail too thin to show.",
        latency.quantiles,
    ),
    "ratios": Plot(
        "Against $baseline",
        "Ratio to the baseline with its interval, each by itself: left of 1 is faster. "
        "An arrow goes on beyond the picture. Inside the shaded margin arms count as "
        "the same; grey dots are undecided.",
        ratio_forest.forest,
    ),
    "attribution": Plot(
        "Where the effect comes from",
        "Left: what each factor does to the ratio when it is added to nothing (alone), "
        "on average over all orders (share), and to all the others (last); where these "
        "are far apart, factors work together. The dashed rule is the whole effect, of "
        "which the shares are the product. Right: main effects and interactions. Grey "
        "is undecided; intervals hold for all lines of a class at once.",
        factor_effects.effects,
    ),
    "phases": Plot(
        "Where the time goes",
        "Mean time by phase: all answered requests, and those beyond the $tail. What a "
        "scheduler can change is the request queue; what admission can change is "
        "blocked and unread.",
        phase_bars.stacked,
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
        "run's $quantile. A triangle at the top is a run that lost too many requests "
        "to have one. Parallel lines mean that the effect is the same whatever the "
        "requests.",
        ratio_forest.block_lines,
    ),
    "speed": Plot(
        "How fast the machine was",
        "Time of a fixed loop on the brokers' CPU in each run, "
        "relative to the median, in the order in which they were played: higher is "
        "slower. "
        "Crosses do not count; that arms met different machines is decided by this "
        "loop alone. Below it, where brokers measured it, what identical requests cost "
        "under an arm, the median of each round or block; dashed is how far its arms "
        "may be apart in the loop's time.",
        over_time.speed,
    ),
    "drift": Plot(
        "Did the machine change while we looked?",
        "Each run's $quantile against its arm's median, in the order in which they "
        "ran. A slope would be the machine's doing, not a scheduler's.",
        over_time.drift,
    ),
}


class StudyPlot(NamedTuple):
    """A figure over all points: title, caption, and how to draw it."""

    title: str
    caption: str
    draw: Callable[[Study], Figure]


def study_plots(study: Study) -> Mapping[str, StudyPlot]:
    """Return the figures of a sweep by name: ratios by level, and a map per pair."""
    if not study.factors:
        return {}
    label, baseline = study.headline.label, study.manifest.baseline
    found = {
        "levels": StudyPlot(
            f"Against {baseline}, by factor level",
            f"Ratio of the {label} to {baseline}'s, averaged over the points of each "
            "level with its interval over blocks, each by itself: below 1 is faster. "
            "Where a line is level within its intervals, nothing shows that the factor "
            "matters to that arm.",
            sweep_maps.by_level,
        )
    }
    for pair in dict.fromkeys(cell.pair for cell in study.pairs):
        first, second = pair
        found[f"map-{first}-{second}"] = StudyPlot(
            f"{first} or {second}: who is ahead where",
            f"Ratio of {first}'s {label} to {second}'s at each point. Coloured where "
            "one is ahead (false discoveries are kept to a share over the whole map), "
            f"= where both are the same within {percent(study.headline.margin)}, grey "
            "where undecided, hatched where a tail is too thin to be shown.",
            functools.partial(sweep_maps.pair_map, pair=pair),
        )
    return found


def plots(comparison: Comparison) -> Mapping[str, Plot]:
    """Return every figure of a report by name, its words filled in."""
    words = {
        "quantile": comparison.headline.label,
        "tail": comparison.tail_metric.label,
        "baseline": comparison.manifest.baseline,
    }
    missing = set() if comparison.designs else {"attribution"}
    if not comparison.manifest.brokers_recorded:
        missing |= {"phases", "queue"}
    if comparison.manifest.episodes is not None:
        # A round has no quantile of its own, and is over before a queue is sampled.
        missing |= {"blocks", "drift", "queue"}
    if not any(run.probes_ns for run in comparison.manifest.runs):
        missing |= {"speed"}
    return {
        name: Plot(
            Template(plot.title).substitute(words),
            Template(plot.caption).substitute(words),
            plot.draw,
        )
        for name, plot in _PLOTS.items()
        if name not in missing
    }
