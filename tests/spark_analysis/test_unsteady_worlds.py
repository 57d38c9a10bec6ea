"""A live world on a machine that was not steady: the first screen says so."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Episodes
from spark_analysis.telling.sentences.answer_of_worlds import worlds_lead
from tests.spark_analysis.test_worlds import together
from tests.spark_analysis.world_studies import WILD, study_in


def among_others(study: Study, share: float) -> Study:
    """Return the study of a machine on which others so often had the broker's CPU."""
    accounts = {"watched_s": 2.0, "others_s": 2 * share, "steal_s": 0.0}
    runs = tuple(replace(run, machine=accounts) for run in study.manifest.runs)
    return replace(study, manifest=replace(study.manifest, runs=runs))


@pytest.mark.parametrize(("share", "told"), [(0.05, False), (0.27, True)])
def test_sizes_of_an_unsteady_machine_are_said_to_be_that(
    share: float, told: bool
) -> None:
    """Neighbours of a live broker made its p99 four times that of the quiet evening."""
    virtual = study_in("virtual", {"planes": 0.2, "wfq": 0.5})
    live = among_others(study_in("live", {"planes": 0.6, "wfq": 0.5}), share)
    last = worlds_lead(together(virtual, live))[-1].replace("\u202f%", "%")
    assert "agrees to within 25% under wfq" in last
    assert "agrees in direction, and not in size, under planes" in last
    why = (
        "there the answer stands on the virtual world, for the machine was too "
        "unsteady (others had the broker's CPU for 27% of the time)."
    )
    assert (why in last) is told


def test_worlds_that_agree_need_no_excuse() -> None:
    virtual = study_in("virtual", {"planes": 0.2, "wfq": 0.5})
    live = among_others(study_in("live", {"planes": 0.2, "wfq": 0.5}), 0.27)
    assert "unsteady" not in worlds_lead(together(virtual, live))[-1]


def test_what_the_witness_left_open_does_not_stand_on_it() -> None:
    virtual = study_in("virtual", {"planes": 0.9}, WILD)
    live = among_others(study_in("live", {"planes": 0.2}), 0.27)
    last = worlds_lead(together(virtual, live))[-1]
    assert "which the virtual world left undecided" in last
    assert "stands on" not in last


def test_too_few_blocks_are_reason_enough() -> None:
    virtual = study_in("virtual", {"planes": 0.2})
    live = among_others(study_in("live", {"planes": 0.2}, blocks=1), 0.27)
    last = worlds_lead(together(virtual, live))[-1]
    assert "too few to decide anything: there the answer stands on the virtual" in last
    assert "unsteady" not in last


def test_a_machine_that_was_seldom_in_quiet_is_unsteady() -> None:
    """Most episodes were dealt again, and what is left of them decides little."""
    virtual = study_in("virtual", {"planes": 0.2})
    live = study_in("live", {"planes": 0.6})
    counted = [replace(run, probes_ns=(20_000,)) for run in live.manifest.runs]
    spoiled = [
        replace(
            run,
            run_id=f"{run.run_id}-{attempt}",
            valid=False,
            reason="machine unsteady: a fixed loop took 1.60 times as long",
        )
        for run in counted
        for attempt in range(3)
    ]
    rule = Episodes(
        primary="control",
        quantile=Fraction(99, 100),
        precision=0.15,
        rounds_min=4,
        minutes=3.0,
        speed_band=1.2,
        looks=(),
    )
    manifest = replace(live.manifest, runs=(*counted, *spoiled), episodes=rule)
    last = worlds_lead(together(virtual, replace(live, manifest=manifest)))[-1]
    assert "too unsteady (only 25\u202f% of the episodes met it in quiet)" in last
