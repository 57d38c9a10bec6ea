"""The hash of first answers: the same twice, another where a policy differs."""

from __future__ import annotations

import copy
from typing import Any

from experiments.design.config import parse
from experiments.running.answers import answers

CONTENT: dict[str, Any] = {
    "experiment": {
        "name": "few",
        "seed": 5,
        "blocks": 1,
        "baseline": "fifo",
        "world": "model",
    },
    "workload": {
        "duration_s": 0.5,
        "traffic": [
            {
                "name": api,
                "connections": 20,
                "arrivals": {"kind": "poisson", "rate_per_s": 300.0},
                "request": {"api": api},
                "service": {"kind": "exponential", "mean_us": 1500.0},
            }
            for api in ("leader-and-isr", "produce")
        ],
    },
    "arms": [
        {"name": "fifo", "scheduler": "fifo"},
        {"name": "other", "scheduler": "priority"},
    ],
}


def with_other(scheduler: str) -> str:
    content = copy.deepcopy(CONTENT)
    content["arms"][1]["scheduler"] = scheduler
    return answers(parse(content))


def test_the_same_code_gives_the_same_answers_and_another_policy_others() -> None:
    first = answers(parse(CONTENT))
    assert first == answers(parse(CONTENT)) == with_other("priority")
    assert len({first, with_other("np-priority"), with_other("fifo")}) == 3


def test_the_first_two_that_are_compared_are_asked() -> None:
    content = copy.deepcopy(CONTENT)
    content["arms"].append({"name": "third", "scheduler": "wfq"})
    plain = answers(parse(content))
    content["analysis"] = {"compare": [["third", "other"]]}
    assert answers(parse(content)) != plain


def test_the_model_answers_for_every_world() -> None:
    assert answers(parse(CONTENT).with_world("live")) == answers(parse(CONTENT))
