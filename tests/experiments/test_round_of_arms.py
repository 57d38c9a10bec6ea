"""A round of episodes: what is dealt again, what counts, and that arms are alike."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from experiments.running.round_of_arms import RoundOfArms
from experiments.running.speed import REMEMBERED, QuietSpeed
from experiments.worlds.episodes import Conditions

ARMS = ("fifo", "planes", "priority", "wfq")
BAND = 1.5
CALIBRATED = 100
MS = 1_000_000

Machine = Iterable[int]


def played(
    machine: Machine,
    arms: tuple[str, ...] = ARMS,
    tries: int = 3,
    quiet: QuietSpeed | None = None,
) -> tuple[list[str], RoundOfArms]:
    """Deal a round on a machine whose loop takes this long, episode by episode."""
    quiet = quiet or QuietSpeed(BAND, CALIBRATED)
    round_ = RoundOfArms(arms, quiet=quiet, away_max_ns=MS, tries=tries)
    times = iter(machine)
    order = []
    while (arm := round_.next()) is not None:
        order.append(arm)
        time_ns = next(times)
        round_.add(arm, Conditions(probes_ns=(time_ns, time_ns)))
    return order, round_


def counted(machine: Machine) -> list[str]:
    order, round_ = played(machine)
    return [f"{order[at]}@{at}" for at in round_.counting()]


def is_quiet(time_ns: int) -> bool:
    return 1 / math.sqrt(BAND) <= time_ns / CALIBRATED <= math.sqrt(BAND)


def test_a_steady_machine_deals_every_arm_once() -> None:
    order, round_ = played(itertools.repeat(100))
    assert order == list(ARMS)
    assert round_.counting() == (0, 1, 2, 3)


def test_one_slow_episode_costs_one_more() -> None:
    order, round_ = played([100, 210, 100, 100, 100])
    assert order == [*ARMS, "planes"]
    assert round_.counting() == (0, 2, 3, 4)
    assert round_.fault(1) == (
        "machine unsteady: a fixed loop took 2.10 times as long in the episode as "
        "in quiet; up to a factor 1.22 counts"
    )


def test_a_generator_whose_cpu_was_away_costs_one_more() -> None:
    quiet = QuietSpeed(BAND, CALIBRATED)
    round_ = RoundOfArms(ARMS, quiet=quiet, away_max_ns=MS, tries=3)
    away_ns = iter([0, MS, 3 * MS, 0, 0])
    order = []
    while (arm := round_.next()) is not None:
        order.append(arm)
        round_.add(arm, Conditions(probes_ns=(100,), away_ns=next(away_ns)))
    assert order == [*ARMS, "priority"]
    assert round_.counting() == (0, 1, 3, 4)
    assert round_.fault(2) == (
        "machine unsteady: the generator was without its CPU for 3.00 ms; up to 1 ms "
        "counts"
    )


def test_a_machine_that_was_slow_for_a_part_of_it_costs_one_more() -> None:
    """Its mean says nothing of that; who does not ask takes it as it is."""
    for slowest_band, expected in ((1.2, [*ARMS, "planes"]), (None, list(ARMS))):
        quiet = QuietSpeed(BAND, CALIBRATED, slowest_band)
        round_ = RoundOfArms(ARMS, quiet=quiet, away_max_ns=MS, tries=3)
        slowest_ns = iter([119, 160, 100, 100, 100])
        order = []
        while (arm := round_.next()) is not None:
            order.append(arm)
            met = Conditions(probes_ns=(101,), slowest_ns=next(slowest_ns))
            round_.add(arm, met)
        assert order == expected
        if slowest_band is not None:
            assert round_.fault(1) == (
                "machine unsteady: a fixed loop took 1.60 times as long for a part of "
                "the episode as in quiet; up to a factor 1.2 counts"
            )


def test_a_machine_that_is_another_for_a_while_is_waited_for() -> None:
    """The load was made for the one that was calibrated, so it counts there."""
    order, round_ = played([100, 100, *[200] * 6, 100, 100])
    assert order == [*ARMS, *["priority", "wfq"] * 3]
    assert round_.counting() == (0, 1, 8, 9)


def test_a_machine_that_has_become_slower_for_good_is_in_quiet_then() -> None:
    quiet = QuietSpeed(BAND, CALIBRATED)
    spoiled = 0
    while not played(itertools.repeat(200), quiet=quiet)[1].counting():
        spoiled += 1
    assert quiet.loop_ns == pytest.approx(200)
    # Until less than a quarter of what is remembered is of the machine before.
    assert spoiled == REMEMBERED * 3 // 4 // (3 * len(ARMS))


def test_without_a_calibration_the_first_rounds_say_what_is_quiet() -> None:
    quiet = QuietSpeed(BAND)
    order, round_ = played([200, 200, 100, 200, 200, 200], quiet=quiet)
    # One in four is quiet, and one in five is an exception.
    assert order == [*ARMS, "fifo", "priority"]
    assert round_.counting() == (1, 3, 4, 5)
    assert quiet.loop_ns == pytest.approx(200)


def test_a_slow_drift_does_not_count_beyond_the_band() -> None:
    """Each differs little from the one before it, the last from what is quiet."""
    order, round_ = played([100, 108, 117, 126, 122])
    assert order == [*ARMS, "wfq"]
    assert round_.counting() == (0, 1, 2, 4)


def test_a_round_is_given_up_with_an_episode_of_every_arm() -> None:
    doubling = (200 * 2**n for n in itertools.count())
    order, round_ = played(itertools.chain([100], doubling), tries=2)
    assert len(order) == 2 * len(ARMS)
    assert set(order) == set(ARMS)
    assert round_.counting() == ()
    assert round_.fault(0) == (
        "machine unsteady: in other episodes of the round it was not in quiet"
    )
    assert "128.00 times as long" in round_.fault(7)


def test_a_round_that_may_not_be_repeated_is_dealt_once() -> None:
    order, round_ = played([100, 900, 100, 100], tries=1)
    assert order == list(ARMS)
    assert round_.counting() == ()


machines = st.lists(st.integers(60, 200), min_size=12, max_size=12)


@given(machines)
def test_what_counts_is_one_episode_of_each_arm_on_one_machine(
    machine: list[int],
) -> None:
    order, round_ = played(machine)
    found = round_.counting()
    if found:
        assert sorted(order[at] for at in found) == sorted(ARMS)
        times = [machine[at] for at in found]
        assert max(times) <= BAND * min(times)
    assert set(order) == set(ARMS)
    assert len(order) <= 3 * len(ARMS)


@given(machines)
def test_a_round_ends_as_soon_as_every_arm_met_the_machine_in_quiet(
    machine: list[int],
) -> None:
    order, round_ = played(machine)
    for end in range(1, len(order) + 1):
        dealt = zip(order[:end], machine, strict=False)
        met = {arm for arm, time_ns in dealt if is_quiet(time_ns)}
        assert (met == set(ARMS)) == (end == len(order) and bool(round_.counting()))


@given(machines, st.permutations(ARMS))
def test_no_arm_is_favoured(machine: list[int], other: list[str]) -> None:
    """With other names in the same places, the same places are dealt and count."""
    rename: Callable[[str], str] = dict(zip(ARMS, other, strict=True)).__getitem__
    order, round_ = played(machine)
    renamed, of_others = played(machine, tuple(other))
    assert renamed == [rename(arm) for arm in order]
    assert of_others.counting() == round_.counting()


def test_a_machine_that_flips_counts_as_the_one_that_was_calibrated() -> None:
    """Slow for a fifth of the time, by turns of some 20 episodes.

    Rounds of eight arms, seeds 0 to 19: no slow episode counts, and most of the others
    do.
    """
    arms = tuple("abcdefgh")
    for seed in range(20):
        rng = random.Random(seed)
        quiet = QuietSpeed(BAND, CALIBRATED)
        slow, machine = False, []
        for _ in range(20_000):
            slow = rng.random() < (0.95 if slow else 0.0125)
            machine.append(175 if slow else 100)
        times = iter(machine)
        episodes = counting = 0
        for _ in range(100):
            order, round_ = played(times, arms, tries=6, quiet=quiet)
            taken = machine[episodes : episodes + len(order)]
            assert all(taken[at] == 100 for at in round_.counting()), seed
            episodes += len(order)
            counting += len(round_.counting())
        assert counting > 0.5 * episodes, seed
