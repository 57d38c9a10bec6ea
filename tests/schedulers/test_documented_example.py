"""The policy in ``docs/writing-a-policy.md`` does what the text says."""

import re
from pathlib import Path

import pytest

from schedulers import Job, SchedulerConfig
from schedulers.conformance import check

DOCUMENT = Path(__file__).parents[2] / "docs" / "writing-a-policy.md"


@pytest.fixture(scope="module")
def lottery():
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    module = {}
    exec(compile(source, "my_policies.py", "exec"), module)
    return module["Lottery"]


def test_the_example_keeps_the_laws(lottery):
    assert check(lottery) == []


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
