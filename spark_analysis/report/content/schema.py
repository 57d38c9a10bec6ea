"""Schema of ``results.json``.

A number that does not exist, is infinite or was refused is null. ``rows`` is a contract
with users of the file: keys may be added, none is renamed.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Metric(TypedDict):
    """A compared quantity; ``quantile`` is null for goodput."""

    name: str
    label: str
    unit: str
    quantile: float | None
    margin: float


class Primary(TypedDict):
    """The class and metric named in the config, by which the experiment is decided."""

    # ``class`` is a keyword of Python.
    class_name: str
    metric: str


class ArmEntry(TypedDict):
    """An arm as configured."""

    name: str
    scheduler: str
    settings: dict[str, str]
    again_of: str | None
    factors: dict[str, str]


class ClassEntry(TypedDict):
    """A request class and its offered load."""

    name: str
    apis: list[str]
    offered_per_s: float


class Caution(TypedDict):
    """A reason to doubt a result; ``kind`` selects its sentence in ``sentences.j2``."""

    kind: str
    values: dict[str, str | int | float]


class World(TypedDict):
    """One world's recording: size, discarded runs, machine."""

    world: str
    deterministic: bool
    seed: int
    created: str
    commit: str
    config_sha256: str
    sessions: int
    sessions_planned: int
    rounds: int
    runs: int
    discarded: dict[str, int]
    requests: int
    window_s: list[float]
    machine: str
    p_min: float
    cautions: list[Caution]


class Point(TypedDict):
    """One point of a sweep."""

    point: str
    levels: dict[str, str]


# Functional syntax, because ``class`` is a keyword.
Row = TypedDict(
    "Row",
    {
        "world": str,
        "point": str,
        "class": str,
        "arm": str,
        "metric": str,
        "value": float | None,
        "low": float | None,
        "high": float | None,
        "ratio": float | None,
        "ratio_low": float | None,
        "ratio_high": float | None,
        "p": float | None,
        "p_min": float | None,
        "verdict": str,
        "why": str,
        "secondary": bool,
        "noise_low": float | None,
        "noise_high": float | None,
        "n": int,
        "blocks": int,
        "sessions": int,
        "effective": float | None,
    },
)

Agreement = TypedDict(
    "Agreement",
    {
        "point": str,
        "first": str,
        "world": str,
        "class": str,
        "arm": str,
        "metric": str,
        "agreement": str,
        "quotient": float | None,
        "quotient_low": float | None,
        "quotient_high": float | None,
        "margin": float,
        "paired": int,
    },
)

TheoryEntry = TypedDict(
    "TheoryEntry",
    {
        "world": str,
        "class": str,
        "arm": str,
        "predicted": float,
        "ratio": float | None,
        "ratio_low": float | None,
        "ratio_high": float | None,
        "verdict": str,
    },
)

Effect = TypedDict(
    "Effect",
    {
        "world": str,
        "point": str,
        "arm": str,
        "class": str,
        "metric": str,
        "kind": str,
        "factors": list[str],
        "ratio": float | None,
        "ratio_low": float | None,
        "ratio_high": float | None,
        "part": float | None,
        "part_low": float | None,
        "part_high": float | None,
        "p": float | None,
        "verdict": str,
    },
)

Pair = TypedDict(
    "Pair",
    {
        "world": str,
        "point": str,
        "class": str,
        "metric": str,
        "first": str,
        "second": str,
        "ratio": float | None,
        "ratio_low": float | None,
        "ratio_high": float | None,
        "p": float | None,
        "ahead": str,
        "why": str,
    },
)

Level = TypedDict(
    "Level",
    {
        "world": str,
        "factor": str,
        "level": str,
        "class": str,
        "arm": str,
        "ratio": float | None,
        "ratio_low": float | None,
        "ratio_high": float | None,
        "points": int,
        "of": int,
    },
)


class PairedCost(TypedDict):
    """CPU cost of identical requests under an arm, relative to the baseline."""

    world: str
    point: str
    arm: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    n: int


Curve = TypedDict(
    "Curve",
    {
        "world": str,
        "point": str,
        "class": str,
        "arm": str,
        "latency_ms": list[float],
        "share": list[float],
        "low": list[float],
        "high": list[float],
    },
)

Phases = TypedDict(
    "Phases",
    {
        "world": str,
        "point": str,
        "class": str,
        "arm": str,
        "slowest": bool,
        "n": int,
        "means_ms": dict[str, float],
    },
)


class QueueMoment(TypedDict):
    """Length of one arm's request queue at one time."""

    world: str
    point: str
    arm: str
    t_s: float
    queued: float
    queued_low: float
    queued_high: float
    waiting: float


class Incident(TypedDict):
    """One measure of an election under load."""

    world: str
    arm: str
    measure: str
    label: str
    unit: str
    meaning: str
    value: float | None
    low: float | None
    high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p: float | None
    verdict: str
    blocks: int


class IncidentAgreement(TypedDict):
    """Agreement of two worlds on one measure of an election."""

    arm: str
    measure: str
    first: str
    world: str
    agreement: str


class Timeline(TypedDict):
    """One incident of one arm, in milliseconds since the controller's decision."""

    world: str
    arm: str
    lanes: dict[str, list[float]]
    obeyed_ms: list[float]
    writable_ms: float | None


class Overload(TypedDict):
    """Backlog at the old leader when the controller decided."""

    world: str
    places: int
    waiting_mean: float
    full: int
    incidents: int


class Election(TypedDict):
    """An election under load in each world that recorded it."""

    measures: list[Incident]
    agreement: list[IncidentAgreement]
    timelines: list[Timeline]
    overload: list[Overload]


class Results(TypedDict):
    """The whole file."""

    schema: int
    name: str
    title: str
    created: str
    baseline: str
    again: str | None
    alpha: float
    margin_worlds: float
    primary: Primary
    metrics: list[Metric]
    classes: list[ClassEntry]
    arms: list[ArmEntry]
    worlds: list[World]
    silent: dict[str, str]
    points: list[Point]
    rows: list[Row]
    costs: list[Row]
    agreement: list[Agreement]
    theory: list[TheoryEntry]
    effects: list[Effect]
    pairs: list[Pair]
    levels: list[Level]
    paired_costs: list[PairedCost]
    curves: list[Curve]
    phases: list[Phases]
    queue: list[QueueMoment]
    election: NotRequired[Election]
