"""Figures of a report in reading order, with titles and captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.content.tables import factors_of, metric_label
from spark_analysis.report.figures.factor_effects import effects
from spark_analysis.report.figures.incident_timeline import timelines
from spark_analysis.report.figures.latency import exceedance_curves
from spark_analysis.report.figures.load_curves import load_curves, load_factor
from spark_analysis.report.figures.overview import overview
from spark_analysis.report.figures.phase_bars import stacked
from spark_analysis.report.figures.queue_length import queue_length
from spark_analysis.report.figures.sweep_maps import by_level, pair_map


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure: file name, title, caption, section, and the function that draws it."""

    name: str
    title: str
    caption: str
    section: str
    draw: Callable[[], Figure]


FIRST = "first"


def plots(found: Results) -> Iterator[Plot]:
    """Yield the figures; the first one is on the first screen."""
    yield from _first(found)
    for world, point in _places(found):
        yield from _of_place(found, world, point)


def _first(found: Results) -> Iterator[Plot]:
    summary = Summary(found)
    if "election" in found:
        yield Plot(
            name="incident",
            title="One incident, arm by arm",
            caption=(
                "Writes by their fate after the controller's decision. Shaded: two "
                "brokers believe that they lead. Green rule: every partition was "
                "written to again."
            ),
            section=FIRST,
            draw=partial(timelines, found),
        )
    factor = load_factor(found)
    if factor is not None:
        yield from _curves(found, factor)
        return
    if not summary.rivals:
        return
    if not summary.swept:
        yield Plot(
            name="overview",
            title="Effect and price",
            caption=(
                f"Ratio to {found['baseline']} with its confidence interval; an arrow "
                "continues beyond the picture. Grey band: noise floor, inside which "
                "no ratio is better or worse."
            ),
            section=FIRST,
            draw=partial(overview, summary),
        )
        return
    if not factors_of(found):
        return
    pairs = dict.fromkeys((it["first"], it["second"]) for it in found["pairs"])
    for first, second in pairs:
        yield Plot(
            name=f"map-{first}-{second}",
            title=f"{first} against {second}",
            caption=(
                f"Ratio of {first} to {second} at each point; coloured where one is "
                "significantly better, hatched where the tail is too thin."
            ),
            section=FIRST,
            draw=partial(pair_map, found, first, second),
        )
    yield Plot(
        name="levels",
        title=f"Ratio to {found['baseline']} by factor level",
        caption="Geometric mean over the points of a level with its interval.",
        section=FIRST,
        draw=partial(by_level, found),
    )


def _curves(found: Results, factor: str) -> Iterator[Plot]:
    """Yield latency and attainment over the load, world by world."""
    label = metric_label(found, found["primary"]["metric"])
    for world in (it["world"] for it in found["worlds"]):
        yield Plot(
            name=f"curves-{world}",
            title=f"Latency and SLO attainment by {factor} ({world})",
            caption=(
                f"{label}, and share of good answers, with their intervals. Grey rule: "
                f"slo_share = {found['slo_share']:g}."
            ),
            section=FIRST,
            draw=partial(load_curves, found, world, factor),
        )


def _places(found: Results) -> list[tuple[str, str]]:
    """Return the worlds and points that have curves."""
    return list(dict.fromkeys((of["world"], of["point"]) for of in found["curves"]))


def _of_place(found: Results, world: str, point: str) -> Iterator[Plot]:
    folder = "-".join(part for part in (world, point) if part).replace("/", "-")
    place = ", ".join(part for part in (world, point) if part)
    yield Plot(
        name=f"ccdf-{folder}",
        title=f"Latency distribution ({place})",
        caption=(
            "Share of requests slower than a given time. Band: confidence interval at "
            "each time; faint where the share is not known to exceed zero."
        ),
        section="distributions",
        draw=partial(exceedance_curves, found, world, point),
    )
    if any((p["world"], p["point"]) == (world, point) for p in found["phases"]):
        yield Plot(
            name=f"phases-{folder}",
            title=f"Time by phase ({place})",
            caption="Mean time of answered requests in each phase.",
            section="phases",
            draw=partial(stacked, found, world, point),
        )
    if any((q["world"], q["point"]) == (world, point) for q in found["queue"]):
        yield Plot(
            name=f"queue-{folder}",
            title=f"Request queue over time ({place})",
            caption=(
                "Median over runs with their range; dashed: requests that a full queue "
                "kept out."
            ),
            section="queue",
            draw=partial(queue_length, found, world, point),
        )
    metric = found["primary"]["metric"]
    if any(
        (e["world"], e["point"], e["metric"]) == (world, point, metric)
        for e in found["effects"]
    ):
        yield Plot(
            name=f"effects-{folder}",
            title=f"Effects of the factors ({place})",
            caption=(
                "Left: a factor added alone, on average over all orders (share), and "
                "last. Right: main effects and interactions. Grey: not significant."
            ),
            section="effects",
            draw=partial(effects, found, world, point),
        )
