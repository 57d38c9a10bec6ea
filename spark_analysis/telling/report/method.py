"""The method in words, where it differs between long runs and rounds of episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from spark_analysis.judging.verdict import RUN_EXCEEDANCES_MIN
from spark_analysis.recordings.contract import Episodes, Manifest
from spark_analysis.statistics.sign_flip import DRAWS, EXACT_BLOCKS_MAX
from spark_analysis.telling.sentences.numbers import counted, percent

_HERE: Final = Path(__file__).parent


def method(manifest: Manifest, blocks: int) -> Mapping[str, str]:
    """Return the paragraphs of the method by the names that the page has for them."""
    episodes = manifest.episodes
    file = "unit_runs.html" if episodes is None else "unit_rounds.html"
    text = Template((_HERE / file).read_text(encoding="utf-8"))
    return {
        "unit": text.substitute(
            blocks=blocks,
            level=percent(manifest.options.confidence),
            baseline=escape(manifest.baseline),
            exceedances=RUN_EXCEEDANCES_MIN,
        ),
        "clusters": "within runs" if episodes is None else "in rounds",
        "run": "run" if episodes is None else "episode",
        "drawn": _drawn(manifest.options.alpha) if blocks > EXACT_BLOCKS_MAX else "",
        "stopping": "" if episodes is None else _stopping(manifest, episodes),
    }


def _drawn(alpha: float) -> str:
    """Say how well a p-value is known that rests on drawn signs."""
    error = math.sqrt(alpha * (1 - alpha) / DRAWS)
    return (
        f" Not all sign vectors are taken, {DRAWS} of them at random: a p of {alpha:g} "
        f"has a Monte Carlo standard error of {error:.1g}."
    )


def _stopping(manifest: Manifest, episodes: Episodes) -> str:
    """Return the sequential rule and what it saw, as entries of the method's list."""
    label = f"p{float(episodes.quantile * 100):g}"
    looks = "; ".join(
        f"{counted(look.rounds, 'round')}: {_widest(look.half_widths)}, "
        f"{escape(look.decision)}"
        for look in episodes.looks
    )
    clock = (
        ""
        if manifest.deterministic
        else f", or until {episodes.minutes:g} minutes were over"
    )
    return (
        "<dt>When it ended</dt>\n"
        "<dd>By a rule that stood in the configuration: rounds were added until the "
        f"interval of the {label} ratio of {escape(episodes.primary)} reached no "
        f"further than a factor {1 + episodes.precision:g} to either side under every "
        f"arm, with {counted(episodes.rounds_min, 'round')} at least{clock}. The rule "
        f"sees how wide intervals are, never where they lie. Its looks: {looks}.</dd>\n"
    )


def _widest(half_widths: Mapping[str, float | None]) -> str:
    known = [width for width in half_widths.values() if width is not None]
    if not half_widths or len(known) < len(half_widths):
        return "some arm without an interval"
    return f"widest a factor {math.exp(max(known)):.3g}"
