"""The machine in sentences: what was repeated, who else was there, who was late."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from spark_analysis.judging.comparison import Comparison
from spark_analysis.recordings.calibrated_cost import calibrated_cost
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.machine_speed import (
    others_share,
    quiet_share,
    steadiness,
    stolen_share,
)
from spark_analysis.telling.sentences.late_sending import latenesses
from spark_analysis.telling.sentences.numbers import (
    agreeing,
    counted,
    digits,
    listed,
    percent,
    ratio,
    ratio_interval,
)

# Of a difference that was found, above which a late generator may be part of it.
LATE_SHARE: Final = 0.1
# Of the time; above them a reader should know that the machine was not alone.
OTHERS_SHARE: Final = 0.1
STOLEN_SHARE: Final = 0.01
# Of the episodes; below it most of what was dealt was thrown away.
QUIET_SHARE: Final = 0.5
# Of the load that is written, to either side.
LOAD_FACTOR: Final = 1.25


def steadiness_sentence(manifest: Manifest) -> str:
    """Say how steady the machine was and what was repeated, or nothing."""
    found = steadiness(manifest)
    band = manifest.speed_band
    if found is None or band is None:
        return ""
    unit, where = "block", f"it differed between arms by more than a factor {band:g}"
    if manifest.episodes is not None:
        unit = "round"
        where = (
            "some arm had no episode in which it was what it is in quiet, to within a "
            f"factor {digits(math.sqrt(band))}"
        )
        slowest = manifest.episodes.slowest_band
        if slowest is not None:
            where += f" (and {digits(slowest)} for a few milliseconds of it)"
    again = ""
    if found.dealt_again:
        episodes = counted(found.dealt_again, "episode")
        was = agreeing(found.dealt_again, "was", "were")
        again = f", and elsewhere {episodes} {was} dealt again for that"
    return (
        f"A fixed loop on the brokers' CPU took up to {digits(found.slowest)} times as "
        f"long as at its fastest; for two arms of a {unit} its times differ with a "
        f"standard deviation of {found.spread:.2f} of the logarithm. "
        f"{found.rounds_spoiled} of {counted(found.rounds_played, unit)} "
        f"{agreeing(found.rounds_spoiled, 'does', 'do')} not count, for there "
        f"{where}{again}."
    )


def load_sentence(manifest: Manifest) -> str:
    """Say by how much the load was another than is written, or nothing."""
    cost = calibrated_cost(manifest)
    if cost is None:
        return ""
    return (
        f"Requests of the baseline cost {ratio(cost.value)} ({ratio_interval(cost)}) "
        "times what they did when the machine was calibrated, and so many times what "
        "the config says is what the load was."
    )


def reasons_sentence(manifest: Manifest) -> str:
    """Count the runs that do not count by what is wrong with them, or say nothing."""
    kinds = Counter(
        manifest.why_excluded(run).partition(":")[0]
        for run in manifest.runs
        if manifest.why_excluded(run)
    )
    if not kinds:
        return ""
    return "Not compared: " + listed(
        [f"{counted(count, 'episode')} ({kind})" for kind, count in kinds.most_common()]
    )


def _measured(share: float) -> str:
    """Return a share that was measured, as per cent with two digits."""
    return percent(float(f"{share:.2g}"))


def unsteadiness(manifest: Manifest) -> str:
    """Return why a machine was too unsteady to tell how large anything is, or nothing.

    Of the machine alone: no latency is looked at, and no cost but the baseline's.
    """
    others, stolen = others_share(manifest), stolen_share(manifest)
    if others is not None and others > OTHERS_SHARE:
        return f"others had the broker's CPU for {_measured(others)} of the time"
    if stolen is not None and stolen > STOLEN_SHARE:
        return f"the host gave {_measured(stolen)} of the broker's CPU to others"
    cost, band = calibrated_cost(manifest), manifest.cost_band
    if cost is not None and not (cost.low <= band and cost.high >= 1 / band):
        return f"requests cost {ratio(cost.value)} times what they did at calibration"
    quiet = quiet_share(manifest)
    if quiet is not None and quiet < QUIET_SHARE:
        return f"only {_measured(quiet)} of the episodes met it in quiet"
    return ""


def machine_cautions(comparison: Comparison) -> tuple[str, ...]:
    """Return what a reader must know of the machine; nothing of a quiet one."""
    manifest = comparison.manifest
    found = []
    others, stolen = others_share(manifest), stolen_share(manifest)
    if stolen is not None and stolen > STOLEN_SHARE:
        found.append(
            f"The host gave {_measured(stolen)} of the broker's CPU to other machines."
        )
    if others is not None and others > OTHERS_SHARE:
        found.append(
            f"Others had the broker's CPU for {_measured(others)} of the time: the "
            "machine was not alone with the experiment."
        )
    cost = calibrated_cost(manifest)
    if cost is not None and not 1 / LOAD_FACTOR <= cost.value <= LOAD_FACTOR:
        found.append(load_sentence(manifest))
    late = [
        of
        for of in latenesses(comparison)
        if of.late_ms > LATE_SHARE * of.effect_ms
        and comparison.cell(of.class_name, of.arm, comparison.headline.name).decided
        and comparison.cell(
            of.class_name, of.arm, comparison.headline.name
        ).verdict.word
        in ("better", "worse")
    ]
    if late:
        said = listed(
            [
                f"{of.class_name} under {of.arm} ({digits(of.late_ms)} ms late, "
                f"difference {digits(of.effect_ms)} ms)"
                for of in late
            ]
        )
        found.append(
            f"The generator sent late beside the difference found (p99 of a typical "
            f"run, above {percent(LATE_SHARE)} of it): {said}."
        )
    return tuple(found)
