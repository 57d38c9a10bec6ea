"""What several worlds say of one election: the order of arms, and where they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spark_analysis.incidents.order import Order
from spark_analysis.incidents.worlds import IncidentPair, IncidentWorlds, SameOrder
from spark_analysis.telling.sentences.incident_sentences import incident_lead
from spark_analysis.telling.sentences.numbers import (
    agreeing,
    counted,
    digits,
    listed,
    percent,
)


def election_sentences(worlds: IncidentWorlds) -> list[str]:
    """Return what is told of the election first: of one world as if it were alone."""
    if len(worlds.incidents) == 1:
        return incident_lead(worlds.witness)
    return [*worlds_sentences(worlds), *_of_each(worlds)]


def worlds_sentences(worlds: IncidentWorlds) -> list[str]:
    """Return how far the worlds agree; of one world there is nothing to say."""
    return [*_counts(worlds), *_contradictions(worlds), *_orders(worlds)]


def order_text(order: Order) -> str:
    """Write an order: in front of the bar those that none is shown to be ahead of."""
    rest = [arm for arm in order.arms if arm not in order.best]
    return " | ".join(", ".join(part) for part in (order.best, rest) if part)


def _of_each(worlds: IncidentWorlds) -> Iterator[str]:
    for incident in worlds.incidents:
        for text in incident_lead(incident):
            yield f"In the {incident.manifest.world} world: {text}"


def _counts(worlds: IncidentWorlds) -> Iterator[str]:
    margin = percent(worlds.witness.manifest.options.margin_worlds)
    by_worlds: dict[tuple[str, str], list[IncidentPair]] = {}
    for pair in worlds.pairs:
        by_worlds.setdefault((pair.first, pair.other), []).append(pair)
    for (first, other), pairs in by_worlds.items():
        found = Counter(it.agreement for it in pairs)
        agree = found["agrees"]
        half = found["size open"] + found["size differs"]
        left = found["undecided"] + found["open"]
        yield (
            f"Of {counted(len(pairs), 'ratio')} to {worlds.witness.manifest.baseline} "
            f"that the {first} and the {other} world both have, {agree} "
            f"{agreeing(agree, 'is', 'are')} the same to within {margin}, {half} "
            f"{agreeing(half, 'has', 'have')} the same direction, on "
            f"{found['contradicts']} the worlds contradict each other, and {left} "
            f"{agreeing(left, 'is', 'are')} not decided in both."
        )


def _contradictions(worlds: IncidentWorlds) -> Iterator[str]:
    for pair in worlds.pairs:
        if pair.agreement == "contradicts":
            yield (
                f"{pair.mine.arm}: {pair.mine.measure.label} is {pair.mine.word} in "
                f"the {pair.first} world ({digits(pair.mine.estimate.value)}) and "
                f"{pair.theirs.word} in the {pair.other} one "
                f"({digits(pair.theirs.estimate.value)})."
            )


def _orders(worlds: IncidentWorlds) -> Iterator[str]:
    for order in worlds.orders:
        both = len(order.same) + len(order.opposite)
        if not both:
            continue
        stood = ", ".join(
            f"{it.manifest.world} {order_text(it.orders[order.measure.name])}"
            for it in worlds.incidents
            if it.manifest.world in (order.first, order.other)
        )
        label = order.measure.label
        yield f"By {label}, the best first: {stood}. {_pairs(order, both)}"


def _pairs(order: SameOrder, both: int) -> str:
    told = f"Pairs of arms that both tell apart: {both}"
    if not order.opposite:
        return f"{told}, all in the same order."
    against = listed([f"{one} and {other}" for one, other in order.opposite])
    return f"{told}, {len(order.same)} in the same order; not so {against}."
