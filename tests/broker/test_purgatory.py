"""A purgatory compared with a naive list, and its edge cases."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.requests.purgatory import PIECE, TICK_NS, DelayedOperation, Purgatory


class Waiting:
    """A delayed operation whose condition is a flag; it counts its calls."""

    def __init__(self) -> None:
        self.satisfied = False
        self.tries = 0
        self.expirations = 0
        self.wakes = 0

    def try_key(self, key: str) -> bool:
        self.tries += 1
        return self.satisfied

    def on_expiration(self) -> None:
        assert self.wakes == 0, "expired after it was woken"
        self.expirations += 1

    def on_failure(self) -> None:
        raise AssertionError("a flag cannot fail")

    def wake(self) -> None:
        self.wakes += 1


def watch(
    purgatory: Purgatory, waiting: Waiting, *keys: str, deadline_ns: int = TICK_NS
) -> DelayedOperation | None:
    return purgatory.watch(waiting, keys, deadline_ns, waiting.wake)


def enter(purgatory: Purgatory, waiting: Waiting, *keys: str) -> DelayedOperation:
    """Enter and park an operation, as a handler does."""
    operation = purgatory.enter(waiting, TICK_NS)
    for key in keys:
        operation.watch(key)
    assert operation.park(waiting.wake)
    return operation


def test_an_operation_that_is_complete_at_once_is_neither_watched_nor_woken() -> None:
    purgatory = Purgatory("Fetch")
    waiting = Waiting()
    waiting.satisfied = True
    assert watch(purgatory, waiting, "a") is None
    assert (purgatory.size, waiting.wakes) == (0, 0)
    assert purgatory.next_expiry_ns() is None


def test_a_check_completes_only_what_holds_and_only_under_that_key() -> None:
    purgatory = Purgatory("Fetch")
    ready, other, unready = Waiting(), Waiting(), Waiting()
    watch(purgatory, ready, "a", "b")
    watch(purgatory, unready, "a")
    watch(purgatory, other, "b")
    ready.satisfied = other.satisfied = True
    assert purgatory.check_and_complete("a") == 1
    assert (ready.wakes, unready.wakes, other.wakes) == (1, 0, 0)
    assert unready.tries == 2
    assert purgatory.check_and_complete("b") == 1
    assert ready.wakes == 1
    purgatory.check()


def test_expiration_comes_once_and_before_the_wake() -> None:
    purgatory = Purgatory("Produce")
    waiting = Waiting()
    operation = watch(purgatory, waiting, "a", deadline_ns=5 * TICK_NS)
    assert operation is not None
    assert purgatory.expire(5 * TICK_NS - 1) == 0
    assert purgatory.expire(5 * TICK_NS) == 1
    assert (waiting.expirations, waiting.wakes) == (1, 1)
    assert not operation.complete()
    assert purgatory.expire(50 * TICK_NS) == 0
    assert purgatory.expired_total == 1


def test_a_deadline_inside_a_tick_expires_at_the_end_of_that_tick() -> None:
    purgatory = Purgatory("Produce")
    watch(purgatory, Waiting(), "a", deadline_ns=TICK_NS + 1)
    assert purgatory.next_expiry_ns() == 2 * TICK_NS


def test_a_change_only_wakes_operations_that_try_in_their_own_turns() -> None:
    purgatory = Purgatory("Fetch", tries_here=False)
    first, second, other = Waiting(), Waiting(), Waiting()
    parked = [
        enter(purgatory, first, "a", "b"),
        enter(purgatory, second, "a"),
        enter(purgatory, other, "b"),
    ]
    assert purgatory.check_and_complete("a") == 2
    assert (first.wakes, second.wakes, other.wakes) == (1, 1, 0)
    # A change before the handler's turn is recorded and does not wake it again.
    assert purgatory.check_and_complete("b") == 1
    assert (first.wakes, other.wakes, purgatory.size) == (1, 1, 3)
    assert first.tries == second.tries == other.tries == 0
    assert [list(each.changed) for each in parked] == [["a", "b"], ["a"], ["b"]]
    # An operation whose try failed parks again without a call of the purgatory.
    assert not parked[0].park(first.wake)
    parked[0].changed.clear()
    assert not parked[0].try_key("a")
    assert parked[0].park(first.wake)
    assert purgatory.check_and_complete("b") == 1
    assert (first.wakes, other.wakes) == (2, 1)
    purgatory.check()


def test_an_operation_of_many_keys_costs_a_change_no_more_than_one_of_one() -> None:
    """A change tries only its own key. The operation is unwatched in pieces."""
    purgatory = Purgatory("Produce")
    waiting = Waiting()
    keys = [f"k{number}" for number in range(10 * PIECE)]
    operation = enter(purgatory, waiting, *keys)
    for key in keys[:3]:
        purgatory.check_and_complete(key)
    assert waiting.tries == 3
    waiting.satisfied = True
    assert purgatory.check_and_complete(keys[0]) == 1
    assert (waiting.wakes, purgatory.size, len(operation.keys)) == (1, 0, len(keys))
    purgatory.check()
    assert purgatory.check_and_complete(keys[1]) == 0
    assert len(list(operation.leaving())) == 9
    assert (waiting.tries, purgatory.watchers) == (4, {})
    purgatory.check()


def test_a_crowd_is_woken_in_pieces_and_each_of_it_once() -> None:
    purgatory = Purgatory("Fetch", tries_here=False)
    crowd = [Waiting() for _ in range(2 * PIECE + 1)]
    for waiting in crowd[:PIECE]:
        enter(purgatory, waiting, "a")
    assert not purgatory.are_many("a")
    *_, last = [enter(purgatory, waiting, "a") for waiting in crowd[PIECE:]]
    assert purgatory.are_many("a")
    assert not purgatory.are_many("b")
    woken = []
    for _ in purgatory.completing("a"):
        woken.append(sum(waiting.wakes for waiting in crowd))
        if len(woken) == 2:
            # The last operation completes before its turn and is not woken again.
            last.complete()
    assert woken == [PIECE, 2 * PIECE]
    assert {waiting.wakes for waiting in crowd} == {1}


def test_a_crowd_expires_in_pieces() -> None:
    purgatory = Purgatory("Fetch")
    for _ in range(2 * PIECE + 1):
        enter(purgatory, Waiting(), "a")
    assert [purgatory.expire(TICK_NS) for _ in range(4)] == [PIECE, PIECE, 1, 0]
    assert purgatory.next_expiry_ns() is None


def test_a_completed_operation_does_not_expire() -> None:
    purgatory = Purgatory("Produce")
    waiting = Waiting()
    watch(purgatory, waiting, "a")
    waiting.satisfied = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.expire(10 * TICK_NS) == 0
    assert (waiting.expirations, waiting.wakes) == (0, 1)


def test_a_key_named_twice_is_watched_once() -> None:
    purgatory = Purgatory("Produce")
    waiting = Waiting()
    watch(purgatory, waiting, "a", "a")
    waiting.satisfied = True
    assert purgatory.check_and_complete("a") == 1
    purgatory.check()


def test_the_timer_is_told_of_earlier_deadlines_only() -> None:
    told: list[int | None] = []
    purgatory = Purgatory("Fetch", lambda: told.append(purgatory.next_expiry_ns()))
    for tick in (5, 7, 5, 3, 4):
        watch(purgatory, Waiting(), "a", deadline_ns=tick * TICK_NS)
    assert told == [5 * TICK_NS, 3 * TICK_NS]


def test_far_deadlines_of_completed_operations_do_not_pile_up() -> None:
    purgatory = Purgatory("Produce")
    for tick in range(10_000):
        waiting = Waiting()
        watch(purgatory, waiting, "a", deadline_ns=(10**6 + tick) * TICK_NS)
        waiting.satisfied = True
        purgatory.check_and_complete("a")
    assert len(purgatory._ticks) <= 1025
    purgatory.check()


class NaivePurgatory:
    """A list of waiting operations, with deadlines in ticks."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Waiting, set[str], int]] = []

    def leave(self, gone: list[tuple[Waiting, set[str], int]]) -> int:
        self.waiting = [entry for entry in self.waiting if entry not in gone]
        return len(gone)

    def check_and_complete(self, key: str) -> int:
        return self.leave([e for e in self.waiting if key in e[1] and e[0].satisfied])

    def expire(self, tick: int) -> int:
        return self.leave([e for e in self.waiting if e[2] <= tick])


KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), st.frozensets(KEYS), st.integers(0, 9)),
        st.tuples(st.just("satisfy"), st.integers(0, 9)),
        st.tuples(st.just("check"), KEYS),
        st.tuples(st.just("expire"), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_a_purgatory_agrees_with_a_list(steps: list[tuple]) -> None:
    purgatory, naive = Purgatory("any"), NaivePurgatory()
    everyone: list[Waiting] = []
    for step in steps:
        match step:
            case "watch", keys, tick:
                waiting = Waiting()
                everyone.append(waiting)
                watch(purgatory, waiting, *keys, deadline_ns=tick * TICK_NS)
                naive.waiting.append((waiting, set(keys), tick))
            case "satisfy", number:
                for waiting in everyone[number : number + 1]:
                    waiting.satisfied = True
            case "check", key:
                assert purgatory.check_and_complete(key) == naive.check_and_complete(
                    key
                )
            case "expire", tick:
                assert purgatory.expire(tick * TICK_NS) == naive.expire(tick)
        purgatory.check()
        left = {id(waiting) for waiting, _, _ in naive.waiting}
        assert purgatory.size == len(left)
        assert all((id(w) in left) == (w.wakes == 0) for w in everyone)
        next_tick = min((tick for _, _, tick in naive.waiting), default=None)
        assert purgatory.next_expiry_ns() == (
            None if next_tick is None else next_tick * TICK_NS
        )


class Failing(Waiting):
    """A delayed operation whose tries raise an error, from the second try on."""

    failures = 0

    def try_key(self, key: str) -> bool:
        if self.tries:
            raise ZeroDivisionError("a device fails")
        return super().try_key(key)

    def on_failure(self) -> None:
        assert self.wakes == 0, "failed after it was woken"
        self.failures += 1


def test_an_operation_that_fails_when_tried_is_woken_and_others_go_on() -> None:
    purgatory = Purgatory("Fetch")
    before, failing, after = Waiting(), Failing(), Waiting()
    for each in (before, failing, after):
        watch(purgatory, each, "a")
    before.satisfied = after.satisfied = True
    assert purgatory.check_and_complete("a") == 3
    assert (before.wakes, failing.wakes, after.wakes) == (1, 1, 1)
    assert failing.failures == 1
    purgatory.check()


def test_an_operation_that_fails_on_arrival_is_not_watched() -> None:
    purgatory = Purgatory("Fetch")
    failing = Failing()
    failing.tries = 1
    assert watch(purgatory, failing, "a") is None
    assert (purgatory.size, failing.failures, failing.wakes) == (0, 1, 0)
