"""Timers, compared with a linear search in a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.shards.timers import Timers

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), KEYS, st.integers(0, 50)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
    ),
    max_size=80,
)


@given(STEPS)
def test_timers_agree_with_a_plain_dictionary(
    steps: list[tuple[str, int, int]],
) -> None:
    timers, model = Timers[int](), dict[int, int]()
    for verb, key, at_ns in steps:
        if verb == "schedule":
            timers.schedule(key, at_ns)
            model[key] = at_ns
        elif verb == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            popped = timers.pop_due(at_ns)
            earliest = min(model.values(), default=at_ns + 1)
            if popped is None:
                assert earliest > at_ns
            else:
                assert model.pop(popped) == earliest <= at_ns
        timers.check()
        assert len(timers) == len(model)
        assert timers.next_ns() == min(model.values(), default=None)


def test_keys_come_due_in_the_order_of_their_deadlines() -> None:
    timers = Timers[str]()
    for key, at_ns in (("late", 9), ("early", 3), ("middle", 5)):
        timers.schedule(key, at_ns)
    timers.schedule("early", 7)
    assert [timers.pop_due(10) for _ in range(4)] == ["middle", "early", "late", None]


def test_equal_deadlines_come_due_in_the_order_of_scheduling() -> None:
    timers = Timers[str]()
    for key in "bac":
        timers.schedule(key, 4)
    assert [timers.pop_due(4) for _ in range(3)] == ["b", "a", "c"]


def test_moving_deadlines_for_ever_takes_no_more_room() -> None:
    timers = Timers[int]()
    for beat in range(10_000):
        timers.schedule(beat % 3, 1_000 - beat)
    assert len(timers._by_deadline) <= 64 + 1


def test_a_sleeper_is_woken_for_an_earlier_deadline_only() -> None:
    told: list[int | None] = []
    timers = Timers[str](lambda: told.append(timers.next_ns()))
    for key, at_ns in [("a", 9), ("b", 12), ("a", 11), ("b", 5), ("c", 8)]:
        timers.schedule(key, at_ns)
    assert told == [9, 5]
