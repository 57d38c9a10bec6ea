"""The figures of a report: one function each, drawn the same way, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_analysis.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure to draw: its file name, title, caption, and how."""

    name: str
    title: str
    caption: str
    draw: Callable[[Comparison], Figure]


def plots(comparison: Comparison) -> Mapping[str, Plot]:
    """Return every figure of a report by name, in the order in which they are read."""
    # Imported here: matplotlib takes longer to load than most commands take to run.
    from spark_analysis.figures import latency, over_time, phases, ratios

    metric, base = comparison.headline.label, comparison.manifest.baseline
    tail = comparison.tail_metric.label
    listed = (
        Plot(
            name="ccdf",
            title="How slow, how often",
            caption=(
                "Share of requests that took longer than a given time, on logarithmic "
                "scales: further left is faster, and the right end of a curve is its "
                "tail. A curve that stops early lost the requests below it."
            ),
            draw=latency.exceedance_curves,
        ),
        Plot(
            name="quantiles",
            title=f"The {metric} and how well it is known",
            caption=(
                f"Pooled {metric} with its interval over blocks; a missing dot is a "
                "tail too thin to show."
            ),
            draw=latency.quantiles,
        ),
        Plot(
            name="ratios",
            title=f"Against {base}",
            caption=(
                "Ratio to the baseline with its interval: left of 1 is faster. Inside "
                "the shaded margin arms count as the same; grey dots are undecided."
            ),
            draw=ratios.forest,
        ),
        Plot(
            name="phases",
            title="Where the time goes",
            caption=(
                f"Mean time by phase: all answered requests, and those beyond the "
                f"{tail}. What a scheduler can change is the request queue; what "
                "admission can change is blocked and unread."
            ),
            draw=phases.stacked,
        ),
        Plot(
            name="queue",
            title="The request queue over time",
            caption=(
                "Requests in the queue, median over blocks with the range between "
                "blocks; dashed: requests that a full queue kept out."
            ),
            draw=over_time.queue,
        ),
        Plot(
            name="blocks",
            title="Block by block",
            caption=(
                f"Each thin line is one block: the same requests under every arm, "
                f"each dot one run's {metric}. Parallel lines mean that the effect is "
                "the same whatever the requests."
            ),
            draw=ratios.block_lines,
        ),
        Plot(
            name="drift",
            title="Did the machine change while we looked?",
            caption=(
                f"Each run's {metric} against its arm's median, in the order in which "
                "they ran. A slope would be the machine's doing, not a scheduler's."
            ),
            draw=over_time.drift,
        ),
    )
    return {plot.name: plot for plot in listed}
