"""Work in steps: the driver runs its blocking calls and closes its generator."""

import pytest

from broker.log.steps import run, watched


class Work:
    """A generator that yields the given calls, and records errors and its end."""

    def __init__(self, *calls):
        self.calls = calls
        self.caught = []
        self.ended = False

    def steps(self):
        try:
            for call in self.calls:
                try:
                    yield call
                except OSError as error:
                    self.caught.append(error)
            return "done"
        finally:
            self.ended = True


def failing_with(error):
    def call():
        raise error

    return call


def test_calls_are_made_and_the_result_is_returned():
    made = []
    work = Work(lambda: made.append(1), None, lambda: made.append(2))
    assert run(work.steps()) == "done"
    assert made == [1, 2]
    assert work.ended


def test_an_error_of_the_device_is_thrown_in_where_the_call_was_asked_for():
    broken, made = OSError("broken"), []
    work = Work(failing_with(broken), lambda: made.append(2))
    assert run(work.steps()) == "done"
    assert work.caught == [broken]
    assert made == [2]


@pytest.mark.parametrize("inside", [run, lambda work: run(watched(work, lambda: True))])
def test_any_other_error_ends_the_work_before_anybody_learns_of_it(inside):
    """Files held by the work are closed at once, not at garbage collection."""
    work = Work(failing_with(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        inside(work.steps())
    assert work.caught == []
    assert work.ended


@pytest.mark.parametrize("error", [None, OSError("broken")])
def test_work_that_is_watched_ends_when_it_is_told_to(error):
    going_on = iter([True, False])
    calls = [None, failing_with(error) if error else None, None]
    work = Work(*calls)
    assert run(watched(work.steps(), lambda: next(going_on))) is None
    assert work.caught == []
    assert work.ended
    assert list(going_on) == []
