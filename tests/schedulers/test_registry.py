"""Policies by name, and a user's own policies by ``module:factory``."""

import pytest

from schedulers import (
    POLICIES,
    BadSetting,
    Job,
    Scheduler,
    SchedulerConfig,
    UnknownScheduler,
    find,
    make,
)
from schedulers.contract.conformance import check


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_made_by_its_name_and_begins_empty(name):
    policy = make(name, SchedulerConfig())
    assert len(policy) == 0
    assert policy.pick(0) is None
    assert list(policy.waiting()) == []
    assert policy.next_event_ns(0) is None


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_states_rule_source_and_cost(name):
    docstring = find(name).__doc__
    assert docstring is not None
    for word in ("Source:", "Cost:", ">>>"):
        assert word in docstring


def test_a_policy_of_ones_own_is_found_by_module_and_factory():
    assert find("schedulers.policies.wfq:Wfq") is POLICIES["wfq"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("lifo", "none of fifo, priority"),
        ("no.such.module:make", "cannot be imported"),
        ("schedulers.policies.fifo:Nothing", "fifo.py has no 'Nothing'"),
        (":", "cannot be imported"),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_expected(name, complaint):
    with pytest.raises(UnknownScheduler, match=complaint):
        find(name)


class Unfinished(Scheduler):
    """Accepts jobs, but has no ``pick``."""

    def arrive(self, job, now_ns):
        raise NotImplementedError


class Stranger:
    """A class that is no `Scheduler`."""

    def __init__(self, config):
        self.config = config


def test_a_policy_that_does_not_say_all_that_it_must_is_refused_with_what_it_lacks():
    with pytest.raises(UnknownScheduler, match=r"py, line \d+\) lacks pick, waiting"):
        find(f"{__name__}:Unfinished")


def test_an_object_that_is_no_scheduler_is_refused_at_once():
    with pytest.raises(UnknownScheduler, match="makes Stranger, no Scheduler"):
        make(f"{__name__}:Stranger", SchedulerConfig())
    assert [it.law for it in check(Stranger, trials=1)] == ["contract"]


@pytest.mark.parametrize(
    ("name", "option", "value", "complaint"),
    [
        ("fifo", "ratio", 2, "fifo has no option ratio, it has none"),
        ("ageing", "slope", 2, "it has ratio"),
        ("ageing", "ratio", 0.5, "at least 1"),
        ("drr", "quantum_ns", 0, "at least 1"),
        ("mclock", "limit.data", 0, "limit.data = 0"),
        ("mclock", "weight.data", 1, "reservation., limit."),
        ("reserved", "seats.control", -1, "at least 0"),
    ],
)
def test_an_option_that_a_policy_cannot_use_is_refused_by_name(
    name, option, value, complaint
):
    with pytest.raises(BadSetting, match=complaint):
        make(name, SchedulerConfig(seats=4, options={option: value}))


def test_a_floor_above_the_ceiling_is_refused():
    options = {"limit.data": 0.2, "reservation.data": 0.3}
    with pytest.raises(BadSetting, match=r"at least 0\.3"):
        make("mclock", SchedulerConfig(options=options))


def test_options_of_one_class_each_are_known_by_their_prefix():
    options = {"seats.control": 1, "steal": 0}
    assert make("reserved", SchedulerConfig(seats=4, options=options)) is not None


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("drr", "quantum_ns"),
        ("eevdf", "slice_ns.data"),
        ("fair-call-queue", "decay_ns"),
    ],
)
def test_a_length_of_time_is_a_nanosecond_at_least(name, option):
    def serve(length_ns):
        policy = make(name, SchedulerConfig(options={option: length_ns}))
        policy.arrive(Job(number=0), 5)
        return policy.pick(5).number

    assert serve(1) == 0
    with pytest.raises(BadSetting, match=f"{option} = 0, expected at least 1"):
        serve(0)
