"""The example policies in ``docs/writing-a-policy.md`` behave as the page states."""

import re
from pathlib import Path

import pytest

from schedulers import Job, Scheduler, SchedulerConfig
from schedulers.contract.conformance import check

DOCUMENT = Path(__file__).parents[2] / "docs" / "writing-a-policy.md"


@pytest.fixture(scope="module")
def documented():
    """Return the policies of the document, by name."""
    sources = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    module = {}
    for source in sources:
        exec(compile(source, "my_policies.py", "exec"), module)
    return module


@pytest.fixture(scope="module")
def lottery(documented):
    return documented["Lottery"]


@pytest.mark.parametrize("name", ["InOrder", "Lottery"])
def test_the_examples_keep_the_laws(documented, name):
    assert check(documented[name]) == []


def test_the_first_example_is_as_short_as_a_policy_can_be(documented):
    (text,) = re.findall(r"class InOrder.*?```", DOCUMENT.read_text(), re.DOTALL)
    lines = [line for line in text.splitlines()[:-1] if line.strip()]
    assert len(lines) == 10
    said = set(vars(documented["InOrder"])) & set(vars(Scheduler))
    assert Scheduler.__abstractmethods__ <= said


def test_the_tables_name_every_default_and_promise_as_it_is():
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    told = {}
    for names, values in rows:
        for name, value in zip(
            re.findall(r"`(\w+)", names), values.split(", "), strict=True
        ):
            told[name] = value
    told["__len__"] = told.pop("len")
    public = {
        name
        for name in vars(Scheduler)
        if name == "__len__" or not name.startswith("_")
    }
    assert set(told) == public - Scheduler.__abstractmethods__
    for name in ("work_conserving", "keeps_flow_order", "may_starve", "OPTIONS"):
        assert told[name] == f"`{getattr(Scheduler, name)}`"


def test_the_example_draws_by_weight(lottery):
    policy = lottery(SchedulerConfig(weights={"a": 3.0, "b": 1.0}))
    for number in range(2):
        policy.arrive(Job(number=number, request_class="ab"[number]), 0)
    drawn = {"a": 0, "b": 0}
    for _ in range(4_000):
        job = policy.pick(0)
        drawn[job.request_class] += 1
        policy.resume(job, 0)
    assert drawn["a"] / 4_000 == pytest.approx(0.75, abs=0.02)
