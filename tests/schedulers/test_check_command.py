"""``doorkeeper schedulers check module:factory`` on a user's policy."""

import random
import sys
import textwrap

import pytest
from click.testing import CliRunner

from doorkeeper.cli import main
from schedulers import Fifo, SchedulerConfig
from schedulers.contract.conformance import make_job
from schedulers.contract.harness import PolicyHarness

BROKEN = """
from schedulers import Fifo, Priority

class Forgetful(Fifo):
    returns = 0
    def resume(self, job, now_ns):
        self.returns += 1
        if self.returns % 5:
            super().resume(job, now_ns)

class Pitiless(Priority):
    def __init__(self, config):
        super().__init__(config)
        self._ageing_ns = None

class Backwards(Fifo):
    def pick(self, now_ns):
        return self._new.pop() if self._new else super().pick(now_ns)

class Uneasy(Fifo):
    def check(self):
        assert len(self) < 3, "three is a crowd"

class Mine(Fifo):
    pass
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_policies.py").write_text(textwrap.dedent(BROKEN))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "my_policies"
    sys.modules.pop("my_policies", None)


def check(name):
    return CliRunner().invoke(main, ["schedulers", "check", name])


@pytest.mark.parametrize(
    ("factory", "law"),
    [
        ("Forgetful", "no job lost: "),
        ("Pitiless", "progress: "),
        ("Backwards", "flow order: "),
        ("Uneasy", "three is a crowd"),
    ],
)
def test_a_policy_that_breaks_a_law_or_its_own_fails_with_that(module, factory, law):
    result = check(f"{module}:{factory}")
    assert result.exit_code == 1
    assert law in result.output


def test_a_policy_that_keeps_the_laws_passes(module):
    result = check(f"{module}:Mine")
    assert (result.exit_code, result.output) == (
        0,
        "my_policies:Mine keeps the laws\n",
    )


def test_an_unknown_name_says_what_was_expected():
    result = check("nothing")
    assert result.exit_code == 2
    assert "nor module:factory" in result.output


@pytest.mark.parametrize("thorough", [True, False])
def test_a_policy_is_asked_for_all_that_waits_where_the_witness_is_thorough(thorough):
    """A full check costs O(waiting), too much for each step of a long backlog."""
    asked = []

    class Asked(Fifo):
        def waiting(self):
            asked.append("waiting")
            return super().waiting()

        def check(self):
            asked.append("check")

    harness = PolicyHarness(Asked, SchedulerConfig)
    harness.thorough = thorough
    harness.arrive(*make_job(0, random.Random(1), 0))
    assert asked == (["waiting", "check"] if thorough else [])
