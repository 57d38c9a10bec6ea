"""An election under load, in plain sentences."""

from __future__ import annotations

from spark_analysis.incidents.incident import Incident, IncidentCell
from spark_analysis.statistics.sign_flip import smallest_p
from spark_analysis.telling.sentences.numbers import (
    counted,
    digits,
    interval,
    listed,
    percent,
)

CAPTION = (
    "One incident under every arm, met with the same requests: each mark is a write. "
    "Grey: accepted by the old leader before the controller decided; red: after it, in "
    "vain; blue: by the new leader; yellow: told NOT_LEADER; purple: without answer. "
    "Shaded is the time from the decision until the old leader had obeyed for the last "
    "partition; at the green line all partitions have acknowledged writes again."
)


def incident_lead(incident: Incident) -> list[str]:
    """Return the answer: what the baseline does, then every rival."""
    manifest = incident.manifest
    base = manifest.baseline
    level = percent(manifest.options.confidence)
    down, vain = (incident.cell(base, it) for it in ("step_down_ms", "accepted"))
    incidents = counted(len(manifest.blocks), "incident")
    said = [
        f"Under {base} the old leader steps down {_value(down)} after the "
        f"controller's decision (mean over {incidents}, {level}: "
        f"{interval(down.estimate)}), and accepts "
        f"{_value(vain)} records meanwhile.",
        _of_overload(incident),
    ]
    said += [_of_rival(incident, arm) for arm in manifest.rivals]
    return [*_too_few(incident), *said, *_of_promises(incident)]


def _too_few(incident: Incident) -> list[str]:
    """Say it if no data of so few incidents could show a difference."""
    count = len(incident.manifest.blocks)
    if smallest_p(count) <= incident.manifest.options.alpha:
        return []
    told = counted(count, "complete incident")
    return [f"With {told} no difference can be shown, and none means sameness."]


def _of_overload(incident: Incident) -> str:
    """Say what waited when the controller decided, and if that was no overload."""
    found = incident.overload
    said = (
        f"When the controller decided, {digits(found.mean)} writes waited there on "
        f"average, and its queue of {found.places} places was full in {found.full} of "
        f"{counted(len(found.waiting), 'incident')}"
    )
    if found.shown:
        return f"{said}."
    return (
        f"{said}: there was no overload, and that arms are alike without one does not "
        "say what they are in one."
    )


def _of_promises(incident: Incident) -> list[str]:
    """Say whether what Kafka promises with acks=all was kept, where that is known."""
    found = [it for it in incident.cells if it.measure.name == "lost_by_all"]
    if not found:
        return []
    broken = [cell.arm for cell in found if cell.estimate.value > 0]
    if broken:
        return [f"Records acknowledged with acks=all were lost under {listed(broken)}."]
    return ["No record acknowledged with acks=all was lost under any arm."]


def _of_rival(incident: Incident, arm: str) -> str:
    """Return what a rival changes, measure by measure."""
    better, worse = [], []
    for measure in incident.measures:
        cell = incident.cell(arm, measure.name)
        if cell.word == "better":
            better.append(_from_to(incident, cell))
        elif cell.word == "worse":
            worse.append(_from_to(incident, cell))
    if not better and not worse:
        return f"{arm}: no difference was found."
    parts = []
    if better:
        parts.append(f"better in {listed(better)}")
    if worse:
        parts.append(f"worse in {listed(worse)}")
    return f"{arm}: {'; '.join(parts)}."


def _from_to(incident: Incident, cell: IncidentCell) -> str:
    base = incident.cell(incident.manifest.baseline, cell.measure.name)
    return f"{cell.measure.label} ({_value(cell)} instead of {_value(base)})"


def _value(cell: IncidentCell) -> str:
    unit = f" {cell.measure.unit}" if cell.measure.unit else ""
    return digits(cell.estimate.value) + unit
