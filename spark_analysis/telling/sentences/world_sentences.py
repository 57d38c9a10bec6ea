"""What worlds agree on, arm by arm, and where one of them is mute.

Said of the class and the metric that the witness tells first. Of a world that could not
decide it is told how many blocks it has, and that the answer stands on the witness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Agreement, WorldCell, Worlds, same_requests
from spark_analysis.recordings.contract import Manifest
from spark_analysis.telling.sentences.cautions import few_blocks_sentence
from spark_analysis.telling.sentences.numbers import counted, digits, listed, percent
from spark_analysis.telling.sentences.verdict_sentences import finding, subject


def worlds_found(worlds: Worlds) -> tuple[str, ...]:
    """Return what the witness and every other world agree on, and what they do not."""
    return tuple(
        text
        for study in worlds.others
        for comparison in worlds.witness.comparisons
        for metric in metrics_told(worlds, study, comparison)
        for text in _in_metric(worlds, study, comparison, metric)
    )


def silent_worlds(worlds: Worlds) -> tuple[str, ...]:
    """Return which worlds cannot be compared at all, and why."""
    witness = worlds.witness.manifest.world
    return tuple(
        f"The {world} world cannot be compared ({why}): the answer stands on the "
        f"{witness} world."
        for world, why in worlds.silent.items()
    )


def worlds_notes(worlds: Worlds) -> tuple[str, ...]:
    """Say whether the worlds replayed the same requests, and how each was loaded."""
    return tuple(_notes(worlds))


def first_cells(
    worlds: Worlds, study: Study, comparison: Comparison, metric: Metric
) -> list[WorldCell]:
    """Return the cells by which a world is told: the first class, every rival."""
    first, world = comparison.class_names[0], study.manifest.world
    point = comparison.manifest.point.name
    return [
        it
        for it in worlds.told(world, first, metric)
        if it.witness.arm in comparison.rivals and it.point == point
    ]


def metrics_told(
    worlds: Worlds, study: Study, comparison: Comparison
) -> tuple[Metric, ...]:
    """Return by what a world is told: the headline, and a quantile that it knows.

    The quantile is the highest one below in which something is decided, where nothing
    is in the headline.
    """
    headline = comparison.headline
    below = comparison.metrics[: comparison.metrics.index(headline)]
    for metric in (headline, *reversed(below)):
        cells = first_cells(worlds, study, comparison, metric)
        if any(it.agreement not in ("undecided", "open") for it in cells):
            return (headline,) if metric == headline else (headline, metric)
    return (headline,)


def _in_metric(
    worlds: Worlds, study: Study, comparison: Comparison, metric: Metric
) -> Iterator[str]:
    cells = first_cells(worlds, study, comparison, metric)
    if not cells:
        return
    world, point = study.manifest.world, comparison.manifest.point.name
    where = f"At {point}, the" if point else "The"
    witness, about = worlds.witness.manifest.world, subject(cells[0].witness)
    within = percent(worlds.margin)
    alike = f"to within {within}, is open"
    open_ = _having(cells, "size open")
    found = {
        "agree": _having(cells, "agrees"),
        f"agree in direction; whether in size, {alike}": [
            it for it in open_ if it.same_direction
        ],
        f"do not contradict each other; whether they agree, {alike}": [
            it for it in open_ if not it.same_direction
        ],
        "agree in direction, not in size": _having(cells, "size differs"),
        "contradict each other": _having(cells, "contradicts"),
    }
    for words, having in found.items():
        if having:
            said = listed([_both(it, world) for it in having])
            yield (
                f"{where} {witness} and the {world} world {words}: the {about} is "
                f"{said}."
            )
    undecided = _having(cells, "undecided")
    mute = [it for it in undecided if says_nothing(it)]
    if mute:
        said = listed(_by_reason(mute))
        yield (
            f"The {world} world, with {blocks_there(study, comparison)}, says nothing "
            f"of the {about} under {said}: there the answer stands on the {witness} "
            "world."
        )
    unsure = [it for it in undecided if not says_nothing(it)]
    if unsure:
        arms = "any arm"
        if len(unsure) < len(cells):
            arms = listed([it.witness.arm for it in unsure])
        yield (
            f"{_why_undecided(study, comparison)} the {about} under {arms}"
            f"{runs_lost(study)}: there the answer stands on the {witness} world."
        )


def _by_reason(cells: Sequence[WorldCell]) -> list[str]:
    """Name arms together of which the other world is silent for the same reason."""
    arms: dict[str, list[str]] = {}
    for it in cells:
        arms.setdefault(it.other.verdict.why, []).append(it.witness.arm)
    return [f"{listed(names)} ({why})" for why, names in arms.items()]


def says_nothing(cell: WorldCell) -> bool:
    """Say whether the other world had too little to compare, however steady it was."""
    verdict = cell.other.verdict
    return bool(verdict.why) and (verdict.word == "refused" or not verdict.compared)


def _why_undecided(study: Study, comparison: Comparison) -> str:
    """Say that a world could not decide, and if that is so for want of blocks."""
    world, blocks = study.manifest.world, blocks_there(study, comparison)
    if too_few_blocks(study, comparison):
        return f"The {world} world has {blocks}, too few to decide"
    return f"The {world} world, with {blocks}, could not decide"


def too_few_blocks(study: Study, comparison: Comparison) -> bool:
    """Say whether no data of so few blocks could decide anything."""
    return bool(few_blocks_sentence(_there(study, comparison)))


def _there(study: Study, comparison: Comparison) -> Manifest:
    """Return what another world's manifest says of a comparison's point."""
    points = {it.manifest.point.name: it.manifest for it in study.comparisons}
    return points[comparison.manifest.point.name]


def blocks_there(study: Study, comparison: Comparison) -> str:
    """Say how many blocks another world has of a comparison's point."""
    manifest = _there(study, comparison)
    unit = "block" if manifest.episodes is None else "round"
    return counted(len(manifest.blocks), f"complete {unit}")


def runs_lost(study: Study) -> str:
    """Say in brackets how many runs did not count, if any."""
    runs = study.manifest.runs
    lost = sum(not run.valid for run in runs)
    of = counted(len(runs), "run")
    return f" ({lost} of {of} did not count)" if lost else ""


def _both(cell: WorldCell, world: str) -> str:
    """Tell what two worlds found under one arm."""
    return f"{finding(cell.witness)} under {cell.witness.arm} ({_brief(cell, world)})"


def _brief(cell: WorldCell, world: str) -> str:
    """Tell what the other world found, as briefly as the first one's words allow."""
    mine, theirs = finding(cell.witness), finding(cell.other)
    tail = mine.lstrip("0123456789.")
    brief = theirs.removesuffix(tail) if tail != mine else theirs
    return f"{world}: {brief}"


def _having(cells: Sequence[WorldCell], agreement: Agreement) -> list[WorldCell]:
    return [it for it in cells if it.agreement == agreement]


def _notes(worlds: Worlds) -> Iterator[str]:
    witness = worlds.witness.manifest
    for study in worlds.others:
        there = study.manifest
        same, of = same_requests(witness, there)
        blocks = counted(of, "block")
        if not of:
            yield f"The {witness.world} and the {there.world} world share no block."
        elif same == of:
            yield (
                f"The {witness.world} and the {there.world} world replayed the same "
                f"requests in the {blocks} that both have, by their traces' hashes."
            )
        else:
            yield (
                f"Of {blocks}, the {witness.world} and the {there.world} world "
                f"replayed the same requests in {same}: in the others they did not."
            )
    for study in worlds.studies:
        point = study.manifest.points[0]
        if point.mean_request_ms and point.stretch:
            yield (
                f"In the {study.manifest.world} world a mean request costs "
                f"{digits(point.mean_request_ms)} ms, and traces were stretched by "
                f"{digits(point.stretch)}."
            )
