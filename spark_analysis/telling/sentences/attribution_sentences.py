"""Where an effect comes from, in plain sentences.

Parts are said on the scale of logarithms, on which factors that multiply add up: of a
hundredfold gain a tenfold one is a half.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_analysis.judging.attribution import Attribution, Design, Effect
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.metrics import headline_of
from spark_analysis.statistics.factorial import Combination, combinations_of
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.telling.sentences.numbers import (
    THIN_SPACE,
    change,
    listed,
    p_value,
    percent,
    ratio,
    ratio_interval,
)

# A combination gets nearly all with this part of the whole.
_NEARLY_ALL = 0.9
_AT_ONCE = "intervals for all combinations at once"


class Said(NamedTuple):
    """What is said of one class: a plain sentence, and what it rests on."""

    plain: str
    detail: str = ""


def attribution_sentences(comparison: Comparison) -> tuple[Said, ...]:
    """Return what is said on each class: where its benefit comes from."""
    why = comparison.design_why
    which = "Some arms make" if comparison.designs else "The arms are"
    said = [Said(f"{which} no full design: {why}.")] if why else []
    for design in comparison.designs:
        said += [_of_class(comparison, design, name) for name in comparison.class_names]
    return tuple(said)


def split_sentences(comparison: Comparison, class_name: str) -> tuple[str, ...]:
    """Say in short, of each design, what every factor does alone and has in the whole.

    Nothing of a design whose whole effect was not found.
    """
    return tuple(
        _split(design, of)
        for design in comparison.designs
        if (of := comparison.attribution_told(design, class_name)) and of.whole.found
    )


def part_sentence(comparison: Comparison, design: Design, class_name: str) -> str:
    """Return what every factor has in a design's whole effect, or nothing.

    Nothing where that effect was not found.
    """
    of = comparison.attribution_told(design, class_name)
    if of is None or not of.whole.found:
        return ""
    return (
        f"Of what {design.full} does for the {of.metric.label} of {class_name}, in "
        f"logarithms and over all orders of adding them, {_has(of)}."
    )


def _has(of: Attribution) -> str:
    """Say what share of the whole each factor has."""
    return listed(
        f"the {effect.factors[0]} has {_part_words(effect.part)}"
        for effect in of.of("share")
    )


def _split(design: Design, of: Attribution) -> str:
    alone = listed(
        f"{_level(design, effect)} alone is {_changed(effect)}"
        for effect in of.of("alone")
    )
    return (
        f"What {design.full} does for the {of.metric.label} of {of.class_name} "
        f"({_changed(of.whole)}), split, with intervals for all lines of the class at "
        f"once: {alone}; of the whole, in logarithms and over "
        f"all orders of adding them, {_has(of)}."
    )


def _level(design: Design, effect: Effect) -> str:
    name = effect.factors[0]
    return f"{name} {design.levels[name][1]}"


def _changed(effect: Effect) -> str:
    """Say a line as a change with its interval, or that it is none that was found."""
    if not effect.found:
        return f"not told from no change, {ratio_interval(effect.ratio)}"
    return f"{change(effect.ratio.value)}, {ratio_interval(effect.ratio)}"


def _of_class(comparison: Comparison, design: Design, name: str) -> Said:
    attribution = comparison.attribution_told(design, name)
    refused = _refused(comparison, design, name)
    if attribution is None:
        of = f" of {design.full}" if len(comparison.designs) > 1 else ""
        return Said(f"On {name} no effect{of} can be told: {refused}.")
    plain, detail = _said(comparison, design, attribution)
    by_less = attribution.metric != headline_of(comparison.metrics)
    note = f" (Not by a higher quantile: {refused}.)" if by_less else ""
    return Said(plain + note, detail)


def _refused(comparison: Comparison, design: Design, class_name: str) -> str:
    """Return why the headline quantile of a class is not told."""
    metric = headline_of(comparison.metrics)
    for of in comparison.attributions:
        if (of.design, of.class_name, of.metric) == (design, class_name, metric):
            return of.why
    return ""


def _said(comparison: Comparison, design: Design, of: Attribution) -> Said:
    whole, metric = of.whole, of.metric
    kind = "goodput" if metric.quantile is None else f"{metric.label} latency"
    level = percent(comparison.manifest.options.confidence)
    what = f"The {kind} of {of.class_name}"
    evidence = (
        f"ratio {ratio(whole.ratio.value)}, {level} interval for all lines of the "
        f"class at once {ratio_interval(whole.ratio)}, p = {p_value(whole.p)}"
    )
    if not whole.found:
        return Said(
            f"{what} is not told apart under {design.full} and {design.none} "
            f"({evidence}): there is nothing to attribute."
        )
    better = (whole.ratio.value < 1) == metric.lower_is_better
    noun = "benefit" if better else "price"
    source = _source(design, of)
    sure = "" if _surely_enough(design, of) else ", by the estimates,"
    plain = (
        f"{what} is {change(whole.ratio.value)} under {design.full} than under "
        f"{design.none} ({evidence}). Nearly all of the {noun} comes{sure} from "
        f"{source}."
    )
    if len(design.factors) == 2:
        return Said(
            f"{plain} Of its logarithm, {_alone(design, of)}, {_AT_ONCE}.",
            f"{_shares(of)}{_drawback(of)}",
        )
    return Said(plain, f"{_each(design, of)} {_shares(of)}{_drawback(of)}")


def _source(design: Design, of: Attribution) -> str:
    """Name the smallest combinations that get nearly all."""
    assert of.reach is not None
    enough = _enough(design, of)
    full = frozenset(design.factors)
    if enough == [full] and len(full) > 1:
        return (
            f"{_together(design, full)}: by their estimates, fewer bring less than "
            f"{percent(_NEARLY_ALL)} of it"
        )
    named = ", or from ".join(
        f"{_together(design, combination)}, {_part_words(of.reach[combination])}"
        for combination in enough
    )
    named += f", {_AT_ONCE}"
    needed = frozenset.intersection(*enough)
    if len(enough) > 1 and needed:
        named += f"; {_together(design, needed)} in any case"
    return named


def _alone(design: Design, of: Attribution) -> str:
    """Say of two factors what each brings by itself, named by its level."""
    assert of.reach is not None
    return listed(
        f"{name} {design.levels[name][1]} alone brings "
        f"{_part_words(of.reach[frozenset({name})])}"
        for name in design.factors
    )


def _each(design: Design, of: Attribution) -> str:
    """Say what every factor does by itself, and what is left without it."""
    assert of.reach is not None
    full = frozenset(design.factors)
    alone = listed(
        f"{name} {_part_words(of.reach[frozenset({name})])}" for name in design.factors
    )
    if len(full) == 1:
        return f"Alone: {alone}."
    without = listed(
        f"without {name} {_part_words(of.reach[full - {name}])}"
        for name in design.factors
    )
    return f"Alone: {alone}; leaving one out: {without}; {_AT_ONCE}."


def _together(design: Design, combination: Combination) -> str:
    names = [name for name in design.factors if name in combination]
    return f"{listed(names)} together" if len(names) > 1 else f"the {names[0]}"


def _enough(design: Design, of: Attribution) -> list[Combination]:
    """Return the combinations with nearly all of which no smaller one has it."""
    assert of.reach is not None
    found: list[Combination] = []
    for combination in combinations_of(design.factors)[1:]:
        reaches = of.reach[combination].value >= _NEARLY_ALL
        if reaches and not any(smaller < combination for smaller in found):
            found.append(combination)
    return found


def _surely_enough(design: Design, of: Attribution) -> bool:
    """Whether no interval says that a combination named may have less."""
    assert of.reach is not None
    return all(of.reach[one].low >= _NEARLY_ALL for one in _enough(design, of))


def _shares(of: Attribution) -> str:
    shares = listed(
        f"{effect.factors[0]} {_part_words(effect.part)}" for effect in of.of("share")
    )
    return f"Shares over all orders of adding them (Shapley): {shares}."


def _drawback(of: Attribution) -> str:
    """Name the factors that take away from the whole when they are added last."""
    gain = of.whole.ratio.value < 1
    against = [e for e in of.of("last") if e.found and (e.ratio.value < 1) != gain]
    if not against:
        return ""
    undoing = listed(f"{e.factors[0]} (ratio {ratio(e.ratio.value)})" for e in against)
    return f" Added to the others, it is undone in part by {undoing}."


def _part_words(part: Estimate | None) -> str:
    """Write a part of the whole with its interval, in per cent."""
    assert part is not None
    # Adding zero takes the sign off a rounded nothing.
    value, low, high = (f"{round(end * 100) + 0:d}" for end in part)
    return f"{value}{THIN_SPACE}% ({low} to {high})"
