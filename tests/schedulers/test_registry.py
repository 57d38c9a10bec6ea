"""Policies by name, and a researcher's own by ``module:factory``."""

import pytest

from schedulers import POLICIES, SchedulerConfig, UnknownScheduler, find, make


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
    assert find("schedulers.wfq:Wfq") is POLICIES["wfq"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("lifo", "none of fifo, priority"),
        ("no.such.module:make", "cannot be imported"),
        ("schedulers.fifo:Nothing", "has no attribute"),
        (":", "cannot be imported"),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_expected(name, complaint):
    with pytest.raises(UnknownScheduler, match=complaint):
        find(name)
