"""A user's policy that breaks the contract: the error names the policy.

Each case runs through the command line. It exits with a status other than 0. One
message names the policy, its file and line, and the violated law and job, or the error
at instantiation. The recording of such a run is not listed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from doorkeeper.cli import main
from schedulers import SchedulerConfig, make, registry
from schedulers.contract.conformance import check, settings
from schedulers.contract.harness import PolicyHarness
from tests.schedulers.faulty_policies import IN_USE, SOURCE, WHEN_MADE, line_of

ROOT = Path(__file__).parents[2]
CONFIG = """
[experiment]
name = "small"
seed = 3
blocks = 1
baseline = "fifo"
again = false
world = "model"

[workload]
duration_s = 0.5

[[workload.traffic]]
name = "produce"
connections = 40
arrivals = { kind = "poisson", rate_per_s = 400.0 }
request = { api = "produce" }
service = { kind = "exponential", mean_us = 2000.0 }

[[arms]]
name = "fifo"
scheduler = "fifo"

[limits]
retries = 0
"""


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "faulty.py").write_text(SOURCE)
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [it for it in sys.path if it])
    yield tmp_path
    sys.modules.pop("faulty", None)


def doorkeeper(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def run(policy: str, world: str) -> Result:
    """Run the config with a user's policy and the baseline, in this process."""
    return doorkeeper(
        *("experiment", "run", "config.toml", "--out", "out", "--world", world),
        *("--executor", "sequential", "--schedulers", f"fifo,faulty:{policy}"),
    )


def one_sentence(result: Result) -> str:
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    (line,) = [it for it in result.output.splitlines() if it.startswith("Error: ")]
    return line


# The last policy that breaks each law; the others of a law are slow.
QUICK = {law: policy for policy, law in IN_USE.items()}.values()
MARKS = {policy: () if policy in QUICK else pytest.mark.slow for policy in IN_USE}
# The model calls `outranks` only while other jobs wait.
CASES = [
    *(
        (policy, law, "model")
        for policy, law in IN_USE.items()
        if policy != "OutranksNothing"
    ),
    *(
        pytest.param(policy, law, "virtual", marks=MARKS[policy])
        for policy, law in IN_USE.items()
    ),
]


@pytest.mark.parametrize(("policy", "law", "world"), CASES)
def test_the_run_fails_and_names_policy_law_and_job(
    at: Path, policy: str, law: str, world: str
) -> None:
    said = one_sentence(run(policy, world))
    place = f"policy faulty:{policy} ({at / 'faulty.py'}, line {line_of(policy)})"
    assert f"{place} broke the law {law!r}: " in said
    assert re.search(r"; job <\w+ #\d+ ", said)
    runs = json.loads((at / "out" / "manifest.json").read_text())["runs"]
    assert all(each["arm"] == "fifo" for each in runs)


@pytest.mark.parametrize(("policy", "why"), WHEN_MADE.items())
@pytest.mark.parametrize(
    "command",
    [
        ["experiment", "run", "config.toml", "--schedulers", "fifo,{}"],
        ["experiment", "plan", "config.toml", "--schedulers", "fifo,{}"],
        ["serve", "--scheduler", "{}"],
    ],
    ids=lambda it: it[0] + it[1],
)
def test_one_that_cannot_be_made_is_refused_with_its_file_and_line(
    at: Path, command: list[str], policy: str, why: str
) -> None:
    name = f"faulty:{policy}"
    said = one_sentence(doorkeeper(*(it.format(name) for it in command)))
    assert f"'{name}' ({at / 'faulty.py'}, line {line_of(policy)}) {why}" in said


@pytest.mark.parametrize(
    "policy",
    [*(pytest.param(it, marks=marks) for it, marks in MARKS.items()), *WHEN_MADE],
)
def test_the_check_names_file_and_line(at: Path, policy: str) -> None:
    found = doorkeeper("schedulers", "check", f"faulty:{policy}")
    assert found.exit_code in (1, 2)
    assert f"({at / 'faulty.py'}, line {line_of(policy)})" in found.output


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("class Works(Fifo):\n    pass\n", "NameError: name 'Fifo' is not defined"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def (\n", "SyntaxError: invalid syntax"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named"),
    ],
)
def test_a_module_that_does_not_import_is_named_with_the_line(
    at: Path, text: str, complaint: str
) -> None:
    (at / "faulty.py").write_text("\n" + text)
    for command in (
        ["schedulers", "check", "faulty:Works"],
        ["serve", "--scheduler", "faulty:Works"],
    ):
        said = one_sentence(doorkeeper(*command))
        assert complaint in said
        assert "faulty.py, line 2)" in said


def test_a_module_without_the_class_is_named_with_the_nearest(at: Path) -> None:
    said = one_sentence(doorkeeper("schedulers", "check", "faulty:Wroks"))
    assert f"{at / 'faulty.py'} has no 'Wroks'; did you mean 'Works'?" in said


def test_a_policy_in_the_current_directory_runs(at: Path) -> None:
    assert run("Works", "model").exit_code == 0


@pytest.mark.live
def test_a_policy_in_the_current_directory_serves(at: Path) -> None:
    command = [
        *(sys.executable, "-P", "-c", "from doorkeeper.cli import main; main()"),
        *("serve", "--scheduler", "faulty:Works", "--set", f"log.dirs={at / 'data'}"),
        *("--set", "listeners=PLAINTEXT://127.0.0.1:0"),
    ]
    with subprocess.Popen(command, cwd=at, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("listening on ")
        broker.send_signal(signal.SIGTERM)
    assert broker.returncode == 0


@pytest.mark.live
def test_a_live_broker_with_a_policy_that_loses_jobs_is_a_failed_run(at: Path) -> None:
    said = run("LosesHalf", "live")
    assert said.exit_code == 1
    assert "no run counts (broker ended with status 1: Error: policy faulty:" in (
        " ".join(said.output.split())
    )


def test_the_guard_lets_every_policy_of_ours_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guard reports no violation for the scripts of the contract."""
    for name, policy in registry.POLICIES.items():

        def factory(config: SchedulerConfig, name: str = name) -> object:
            return make(f"{__name__}:{name}", config)

        monkeypatch.setitem(globals(), name, policy)
        assert not check(factory, trials=6)  # type: ignore[arg-type]


def test_the_guard_keeps_promises_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "wfq", registry.POLICIES["wfq"])
    made = make(f"{__name__}:wfq", settings(2))
    own = registry.POLICIES["wfq"](settings(2))
    for promise in ("work_conserving", "shares_by_weight", "preempts", "least_turn_ns"):
        assert getattr(made, promise) == getattr(own, promise)
    assert PolicyHarness(lambda _: made, lambda: settings(2)).subject is made
