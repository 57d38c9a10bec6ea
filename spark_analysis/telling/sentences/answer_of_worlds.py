"""The answer of several worlds: the witness's, then whether each other world agrees.

Short enough for a first screen: the answer as the witness has it, and of each other
world a sentence, with another one where it is mute in the metric that is told first and
not in a lower quantile. Arm by arm, with what they found, is `world_sentences`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Agreement, WorldCell, Worlds
from spark_analysis.telling.sentences.answer import answer
from spark_analysis.telling.sentences.machine_sentences import unsteadiness
from spark_analysis.telling.sentences.numbers import counted, listed, percent
from spark_analysis.telling.sentences.sweep_sentences import study_lead
from spark_analysis.telling.sentences.verdict_sentences import finding, subject
from spark_analysis.telling.sentences.world_sentences import (
    blocks_there,
    first_cells,
    metrics_told,
    runs_lost,
    says_nothing,
    silent_worlds,
    too_few_blocks,
)

# More arms than this are counted instead of named.
_NAMED: Final = 6
_AGAINST: Final = ("contradicts", "size differs")


def worlds_lead(worlds: Worlds) -> tuple[str, ...]:
    """Return the answer, and in a sentence or two what each other world says of it."""
    witness = worlds.witness
    head, *rest = study_lead(witness) if witness.swept else _answer(worlds)
    tell = _over_points if witness.swept else _of_world
    return (
        f"In the {witness.manifest.world} world: {head}",
        *rest,
        *silent_worlds(worlds),
        *(text for study in worlds.others for text in tell(worlds, study)),
    )


def _answer(worlds: Worlds) -> tuple[str, ...]:
    (comparison,) = worlds.witness.comparisons
    world, first = comparison.manifest.world, comparison.class_names[0]
    return answer(comparison, worlds.orders.get((world, first)))


def _over_points(worlds: Worlds, study: Study) -> Iterator[str]:
    """Count over a sweep where a world agrees on the first class."""
    metric = worlds.witness.headline
    cells = [
        cell
        for comparison in worlds.witness.comparisons
        for cell in first_cells(worlds, study, comparison, metric)
    ]
    if not cells:
        return
    points = counted(len({it.point for it in cells}), "point")
    agree = sum(it.agreement == "agrees" for it in cells)
    against = sum(it.agreement in _AGAINST for it in cells)
    yield (
        f"Of {counted(len(cells), 'ratio')} of the {subject(cells[0].witness)} at "
        f"{points}, the {study.manifest.world} world has {agree} the same to within "
        f"{percent(worlds.margin)} and {against} not, and leaves "
        f"{len(cells) - agree - against} open."
    )


def _of_world(worlds: Worlds, study: Study) -> Iterator[str]:
    (comparison,) = worlds.witness.comparisons
    for metric in metrics_told(worlds, study, comparison):
        cells = first_cells(worlds, study, comparison, metric)
        if metric != comparison.headline:
            yield _by_less(worlds, study, metric, cells)
        elif cells:
            yield _by_headline(worlds, study, comparison, cells)


def _by_headline(
    worlds: Worlds, study: Study, comparison: Comparison, cells: Sequence[WorldCell]
) -> str:
    """Tell everything of the metric that is told first, in one sentence.

    Where the machine was not steady, that is why the worlds do not agree in all.
    """
    world, witness = study.manifest.world, worlds.witness.manifest.world
    who = f"On the {subject(cells[0].witness)} the {world} world"
    blocks = blocks_there(study, comparison)
    stands = f"{runs_lost(study)}: there the answer stands on the {witness} world."
    if too_few_blocks(study, comparison):
        return f"{who} has {blocks}, too few to decide anything{stands}"
    unsteady = unsteadiness(study.manifest)
    if unsteady:
        stands = f"{stands[:-1]}, for the machine was too unsteady ({unsteady})."
    parts = listed([*_found(worlds, cells), *_missing(cells, witness)])
    # What the witness left open does not stand on the witness.
    apart = {it.agreement for it in cells} - {"agrees", "open"}
    told = bool(apart) if unsteady else "undecided" in apart
    return f"{who}, with {blocks}, {parts}{stands if told else '.'}"


def _by_less(
    worlds: Worlds, study: Study, metric: Metric, cells: Sequence[WorldCell]
) -> str:
    """Tell what is found by a lower quantile, where the first metric tells nothing."""
    found = listed(_found(worlds, cells))
    return f"By the {metric.label} the {study.manifest.world} world {found}."


def _found(worlds: Worlds, cells: Sequence[WorldCell]) -> Iterator[str]:
    """Yield what the other world found, by how it agrees."""
    for words, having in _by_agreement(worlds, cells):
        arms = _arms(having, cells, "every arm")
        yield f"{words} {arms}{_both(having[0]) if len(having) == 1 else ''}"


def _by_agreement(
    worlds: Worlds, cells: Sequence[WorldCell]
) -> Iterator[tuple[str, list[WorldCell]]]:
    """Yield words for how worlds agree, and the cells of which they are true."""
    within = percent(worlds.margin)
    by: dict[Agreement, list[WorldCell]] = {}
    for it in cells:
        by.setdefault(it.agreement, []).append(it)
    open_ = by.get("size open", [])
    groups = (
        (f"agrees to within {within} under", by.get("agrees", [])),
        (
            f"agrees in direction (in size, to within {within}, open) under",
            [it for it in open_ if it.same_direction],
        ),
        (
            f"is neither shown to agree, to within {within}, nor to differ under",
            [it for it in open_ if not it.same_direction],
        ),
        ("agrees in direction, and not in size, under", by.get("size differs", [])),
        ("contradicts it under", by.get("contradicts", [])),
    )
    yield from ((words, having) for words, having in groups if having)


def _both(cell: WorldCell) -> str:
    """Return what both worlds found of the only arm that is told."""
    if cell.agreement == "agrees":
        return ""
    other, witness = finding(cell.other), finding(cell.witness)
    return f" ({cell.world}: {other}, {cell.first}: {witness})"


def _missing(cells: Sequence[WorldCell], witness: str) -> Iterator[str]:
    """Yield under which arms one of the two worlds has not decided."""
    undecided = [it for it in cells if it.agreement == "undecided"]
    mute = [it for it in undecided if says_nothing(it)]
    if mute:
        lost = any(math.isinf(it.other.measured.estimate.value) for it in mute)
        why = "requests were lost there" if lost else "too few requests beyond it"
        yield f"says nothing under {_arms(mute, cells, 'any arm')} ({why})"
    unsure = [it for it in undecided if not says_nothing(it)]
    if unsure:
        yield f"could not decide under {_arms(unsure, cells, 'any arm')}"
    open_ = [it for it in cells if it.agreement == "open"]
    if open_:
        arms = _arms(open_, cells, "any arm")
        yield f"is not asked under {arms}, which the {witness} world left undecided"


def _arms(having: Sequence[WorldCell], of: Sequence[WorldCell], everyone: str) -> str:
    """Name arms; all of several in a word, and many by their number."""
    if len(having) == len(of) > 1:
        return everyone
    if len(having) > _NAMED:
        return f"{len(having)} of {counted(len(of), 'arm')}"
    return listed([it.witness.arm for it in having])
