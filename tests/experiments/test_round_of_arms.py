"""A round of episodes: what is dealt again, what counts, and that arms are alike."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

import hypothesis.strategies as st
from hypothesis import given

from experiments.running.round_of_arms import RoundOfArms

ARMS = ("fifo", "planes", "priority", "wfq")
BAND = 1.5

Machine = Iterable[int]


def played(
    machine: Machine, arms: tuple[str, ...] = ARMS, tries: int = 3
) -> tuple[list[str], RoundOfArms]:
    """Deal a round on a machine whose loop takes this long, episode by episode."""
    round_ = RoundOfArms(arms, band=BAND, tries=tries)
    times = iter(machine)
    order = []
    while (arm := round_.next()) is not None:
        order.append(arm)
        time_ns = next(times)
        round_.add(arm, (time_ns, time_ns))
    return order, round_


def counted(machine: Machine) -> list[str]:
    order, round_ = played(machine)
    return [f"{order[at]}@{at}" for at in round_.counting()]


def test_a_steady_machine_deals_every_arm_once() -> None:
    order, round_ = played(itertools.repeat(100))
    assert order == list(ARMS)
    assert round_.counting() == (0, 1, 2, 3)
    assert round_.fault() == ""


def test_one_slow_episode_costs_one_more() -> None:
    order, round_ = played([100, 210, 100, 100, 100])
    assert order == [*ARMS, "planes"]
    assert round_.counting() == (0, 2, 3, 4)
    assert round_.fault() == (
        "machine unsteady: a fixed loop took 2.10 times as long around the episode of "
        "planes (slowest) as around that of fifo (fastest); up to 1.5 counts"
    )


def test_a_machine_that_becomes_another_is_followed() -> None:
    """The round goes on there, and asks for those who were dealt before the change."""
    order, round_ = played([100, 100, 200, 200, 200, 200])
    assert order == [*ARMS, "fifo", "planes"]
    assert round_.counting() == (2, 3, 4, 5)


def test_a_machine_that_comes_back_finds_what_was_dealt_on_it() -> None:
    assert counted([100, 100, 100, 200, 100, 100]) == [
        "planes@1",
        "priority@2",
        "fifo@4",
        "wfq@5",
    ]


def test_a_slow_drift_within_the_round_does_not_count_beyond_the_band() -> None:
    """Each differs little from the one before it, the ends by more than the band."""
    order, round_ = played([100, 120, 144, 172, 172])
    assert order == [*ARMS, "fifo"]
    assert round_.counting() == (1, 2, 3, 4)


def test_a_round_is_given_up_with_an_episode_of_every_arm() -> None:
    doubling = (100 * 2**n for n in itertools.count())
    order, round_ = played(doubling, tries=2)
    assert len(order) == 2 * len(ARMS)
    assert set(order) == set(ARMS)
    assert round_.counting() == ()
    assert "128.00 times as long" in round_.fault()


def test_a_round_that_may_not_be_repeated_is_dealt_once() -> None:
    order, round_ = played([100, 900, 100, 100], tries=1)
    assert order == list(ARMS)
    assert round_.counting() == ()


machines = st.lists(st.integers(100, 300), min_size=12, max_size=12)


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
def test_a_round_ends_as_soon_as_some_of_its_episodes_count(machine: list[int]) -> None:
    """Held against every choice of an episode for each arm that ends with the last."""
    order, round_ = played(machine)
    for end in range(1, len(order) + 1):
        dealt = list(zip(order[:end], machine, strict=False))
        choices = itertools.product(
            *([time for arm, time in dealt if arm == wanted] for wanted in ARMS)
        )
        last = dealt[-1][1]
        possible = any(
            max(times) <= BAND * min(times) and last in times for times in choices
        )
        assert possible == (end == len(order) and bool(round_.counting()))


@given(machines, st.permutations(ARMS))
def test_no_arm_is_favoured(machine: list[int], other: list[str]) -> None:
    """With other names in the same places, the same places are dealt and count."""
    rename: Callable[[str], str] = dict(zip(ARMS, other, strict=True)).__getitem__
    order, round_ = played(machine)
    renamed, of_others = played(machine, tuple(other))
    assert renamed == [rename(arm) for arm in order]
    assert of_others.counting() == round_.counting()


def broken_off(machine: Machine, arms: int) -> int:
    """Count the episodes of a rule that begins anew where a round is spoiled."""
    times = iter(machine)
    dealt, here = 0, list[int]()
    while len(here) < arms:
        here.append(next(times))
        dealt += 1
        if max(here) > BAND * min(here):
            here = []
    return dealt


def test_a_machine_that_lurches_costs_less_than_whole_rounds() -> None:
    """It changes with one episode in ten; rounds of eight arms, seeds 0 to 199."""
    arms = tuple("abcdefgh")
    mended = whole = 0
    for seed in range(200):
        rng = random.Random(seed)
        machine = [100]
        for _ in range(2000):
            lurches = rng.random() < 0.1
            machine.append(300 - machine[-1] if lurches else machine[-1])
        order, round_ = played(machine, arms, tries=100)
        assert round_.counting()
        mended += len(order) - len(arms)
        whole += broken_off(machine, len(arms)) - len(arms)
    assert mended < 0.6 * whole
