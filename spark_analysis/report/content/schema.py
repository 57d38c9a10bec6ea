"""Schema of ``results.json``.

A number that does not exist, is infinite or was refused is null. ``rows`` is a contract
with users of the file: keys may be added, but none is renamed.
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


class Definition(TypedDict):
    """Definition of a metric; ``better`` is lower or higher."""

    name: str
    label: str
    unit: str
    better: str
    formula: str
    source: str
    condition: str


class Primary(TypedDict):
    """The configured class and metric that decide the experiment."""

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


class Value(TypedDict):
    """A value with its interval."""

    value: float | None
    low: float | None
    high: float | None


class Ratio(TypedDict):
    """A ratio to the baseline, or of two arms, with its interval."""

    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


# Functional syntax, because ``class`` is a keyword.
Cell = TypedDict("Cell", {"world": str, "class": str, "arm": str})


class Place(Cell):
    """A class under an arm at a point of a world."""

    point: str


class Row(Place, Value, Ratio):
    """A place in one metric, compared with the baseline."""

    metric: str
    p: float | None
    p_min: float | None
    verdict: str
    why: str
    secondary: bool
    noise_low: float | None
    noise_high: float | None
    n: int
    blocks: int
    sessions: int
    effective: float | None


class Agreement(Place):
    """Agreement of the worlds ``first`` and ``world`` on one ratio."""

    first: str
    metric: str
    agreement: str
    quotient: float | None
    quotient_low: float | None
    quotient_high: float | None
    margin: float
    paired: int


class TheoryEntry(Cell, Ratio):
    """Ratio of the mean latency: predicted by a closed form, and measured."""

    predicted: float
    verdict: str


class Effect(Place, Ratio):
    """Effect of one factor or several; ``part`` is its share of the whole effect."""

    metric: str
    kind: str
    factors: list[str]
    part: float | None
    part_low: float | None
    part_high: float | None
    p: float | None
    verdict: str


_OfClass = TypedDict("_OfClass", {"class": str})


class Pair(_OfClass, Ratio):
    """Two arms against each other at a point."""

    world: str
    point: str
    metric: str
    first: str
    second: str
    p: float | None
    ahead: str
    why: str


class Level(Cell, Ratio):
    """Mean ratio over the ``points`` of a factor's level that were compared."""

    factor: str
    level: str
    points: int
    of: int


class PairedCost(Ratio):
    """CPU cost of identical requests under an arm, relative to the baseline."""

    world: str
    point: str
    arm: str
    n: int


class Curve(Place):
    """CCDF of the latency, with bounds at each time."""

    latency_ms: list[float]
    share: list[float]
    low: list[float]
    high: list[float]


class Phases(Place):
    """Mean time in each phase, of all answered requests or of the slowest."""

    slowest: bool
    n: int
    means_ms: dict[str, float]


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


class Incident(Value):
    """One measure of an election under load."""

    world: str
    arm: str
    measure: str
    label: str
    unit: str
    meaning: str
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
    slo_share: float
    primary: Primary
    metrics: list[Metric]
    definitions: list[Definition]
    classes: list[ClassEntry]
    arms: list[ArmEntry]
    worlds: list[World]
    silent: dict[str, str]
    points: list[Point]
    rows: list[Row]
    measures: list[Row]
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
