"""``doorkeeper schedulers check module:factory``, as a researcher meets it."""

import sys
import textwrap

import pytest
from click.testing import CliRunner

from doorkeeper.cli import main

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
    ],
)
def test_a_policy_that_loses_starves_or_reorders_fails_with_its_law(
    module, factory, law
):
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
