"""A sweep in sentences: who is ahead at how many points, and what to beware of."""

from __future__ import annotations

from collections.abc import Sequence

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.pairs import Pair, PairCell
from spark_analysis.judging.study import Study
from spark_analysis.telling.sentences.attribution_sentences import (
    Said,
    attribution_sentences,
)
from spark_analysis.telling.sentences.cautions import (
    cautions,
    few_blocks_sentence,
    unbilled_sentence,
    violations_sentence,
)
from spark_analysis.telling.sentences.numbers import (
    change,
    counted,
    for_all,
    listed,
    p_value,
    percent,
    ratio,
    ratio_interval,
)
from spark_analysis.telling.sentences.silences import study_silences
from spark_analysis.telling.sentences.verdict_sentences import (
    again_sentence,
    differs,
    replays_apart,
)

# Points are named up to this number, and counted beyond.
_NAMED = 3


def _pairs_of(study: Study) -> tuple[Pair, ...]:
    """Return the pairs that were compared, those asked for first."""
    return tuple(dict.fromkeys(cell.pair for cell in study.pairs))


def pair_sentences(study: Study, class_names: Sequence[str]) -> tuple[str, ...]:
    """Return one sentence per pair and class, in the headline metric."""
    said, level = [], percent(study.manifest.options.confidence)
    for pair in _pairs_of(study):
        for name in class_names:
            cells = [
                cell
                for cell in study.pairs
                if (cell.pair, cell.class_name, cell.metric)
                == (pair, name, study.headline)
            ]
            if cells:
                told = _counted(cells, level) if study.swept else _single(cells)
                about = f"{pair.first} against {pair.second}, {_what(cells[0])}"
                said.append(f"{about}: {told}.")
    return tuple(said)


def _what(cell: PairCell) -> str:
    kind = "goodput" if cell.metric.quantile is None else cell.metric.label
    return f"{kind} of {cell.class_name}"


def _single(cells: Sequence[PairCell]) -> str:
    (cell,) = cells
    if cell.ratio is None:
        return f"not shown, {cell.why}"
    # The q is of all classes at once; beside it an interval of one needs a word.
    own = "interval by itself " if cell.winner == "undecided" else ""
    evidence = (
        f"ratio {ratio(cell.ratio.value)}, {own}{ratio_interval(cell.ratio)}, "
        f"q = {p_value(cell.q)}"
    )
    if cell.winner == "same":
        return f"the same within {percent(cell.metric.margin)} ({evidence})"
    if cell.winner == "undecided":
        return f"undecided ({evidence})"
    latency = cell.metric.quantile is not None
    return f"{change(cell.ratio.value, latency=latency)} ({evidence})"


def _counted(cells: Sequence[PairCell], level: str) -> str:
    """Count points by who is ahead, with the extreme of each."""
    parts, of = [], counted(len(cells), "point")
    known = sum(cell.ratio is not None for cell in cells)
    at_once = f"{level} interval{for_all(known, 'point')}"
    for winner in ("first", "second"):
        found = [cell for cell in cells if cell.winner == winner]
        if found:
            arm = found[0].ahead
            parts.append(f"{arm} is ahead at {len(found)} of {of}")
            parts[-1] += _extreme(found, at_once)
    same = f"the same within {percent(cells[0].metric.margin)}"
    words = {"same": same, "undecided": "undecided", "refused": "not shown"}
    for winner, word in words.items():
        found = [cell for cell in cells if cell.winner == winner]
        if found:
            parts.append(f"{word} at {len(found)}{_where(found)}")
    return ", ".join(parts)


def _extreme(cells: Sequence[PairCell], at_once: str) -> str:
    """Tell the ratio furthest from 1, with an interval for one that was picked."""
    first = cells[0].winner == "first"
    lower = first == cells[0].metric.lower_is_better
    pick = min if lower else max
    cell = pick(cells, key=lambda one: one.ratio.value if one.ratio else 1.0)
    assert cell.at_once is not None
    return (
        f" (furthest with ratio {ratio(cell.at_once.value)}, {at_once} "
        f"{ratio_interval(cell.at_once)}, at {cell.point})"
    )


def _where(cells: Sequence[PairCell]) -> str:
    if len(cells) > _NAMED:
        return ""
    return f" ({', '.join(cell.point for cell in cells)})"


def study_lead(study: Study) -> tuple[str, ...]:
    """Return what a sweep found on the first class, and where effects come from."""
    pairs = pair_sentences(study, study.class_names[:1])
    return (*pairs, *(said.plain for said in study_attribution(study)))


def study_attribution(study: Study) -> tuple[Said, ...]:
    """Return what is said of effects, each with its point where there are several."""
    if not study.swept:
        return attribution_sentences(study.comparisons[0])
    return tuple(
        said._replace(plain=f"At {comparison.manifest.point.name}: {said.plain}")
        for comparison in study.comparisons
        for said in attribution_sentences(comparison)
    )


def study_again(study: Study) -> str:
    """Say what the A/A arm shows over all points."""
    if not study.swept:
        return again_sentence(study.comparisons[0])
    with_again = [c for c in study.comparisons if c.again is not None]
    if not with_again:
        return again_sentence(study.comparisons[0])
    if study.manifest.deterministic:
        broken = [c for c in with_again if replays_apart(c)]
        return again_sentence((broken or with_again)[0])
    alarmed = [c for c in with_again if _alarmed(c)]
    alpha = percent(study.manifest.options.alpha)
    return (
        f"{with_again[0].again} is {study.manifest.baseline} once more: a difference "
        f"was found in some metric at {len(alarmed)} of "
        f"{counted(len(with_again), 'point')}. Each metric may raise a "
        f"false alarm at {alpha} of the points."
    )


def _alarmed(comparison: Comparison) -> bool:
    return any(differs(cell) for cell in comparison.of_arm(comparison.again or ""))


def study_cautions(study: Study) -> tuple[str, ...]:
    """Return one sentence per reason for caution, points taken together."""
    if not study.swept:
        return cautions(study.comparisons[0])
    manifest, found = study.manifest, []
    if not manifest.finished:
        found.append("This experiment is unfinished.")
    if study.points_missing:
        names = [point.name for point in study.points_missing]
        many = len(names) > _NAMED
        named = counted(len(names), "point") if many else listed(names)
        found.append(f"Left out, without a block that has all arms: {named}.")
    short = [c for c in study.comparisons if _dropped(c)]
    if short:
        points = counted(len(short), "point")
        found.append(f"At {points} some block or arm had to be left out.")
    few = [c for c in study.comparisons if few_blocks_sentence(c.manifest)]
    if few:
        least = min(len(comparison.manifest.blocks) for comparison in few)
        found.append(
            f"At {len(few)} of {counted(len(study.comparisons), 'point')} so few "
            f"blocks are complete (at the least {least}) that no data could give a p "
            f"below {p_value(manifest.options.alpha)}: every verdict there is "
            "inconclusive, and none means sameness."
        )
    found += study_silences(study)
    if any(c.again and replays_apart(c) for c in study.comparisons):
        found += [study_again(study)] if manifest.deterministic else []
    found += filter(None, (violations_sentence(manifest), unbilled_sentence(manifest)))
    return tuple(found)


def _dropped(comparison: Comparison) -> bool:
    manifest = comparison.manifest
    return (
        len(manifest.blocks) < manifest.blocks_planned or len(manifest.arms_missing) > 0
    )
