"""``doorkeeper theory``: the table, its intervals and the exit status."""

import json
import shutil
import statistics
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from doorkeeper.cli import main
from experiments.design.config_file import load
from experiments.design.points import planned_points
from experiments.theory.compare import PATHWISE, compare, interval
from experiments.theory.measure import TrialMeasures, measures_of
from experiments.theory.measure import recorded as recorded_runs
from experiments.theory.predict import (
    BUSY_SERVERS,
    MEAN_WAIT,
    P99_WAIT,
    THROUGHPUT,
    WORK_X_WAIT,
)

CONFIG = """
[experiment]
name = "little"
seed = 5
blocks = 3
baseline = "fifo"
again = false
world = "model"

[workload]
duration_s = 3.0
warmup_s = 0.5

[[workload.traffic]]
name = "produce"
connections = 300
arrivals = { kind = "poisson", rate_per_s = 250.0 }
request = { api = "produce" }
service = { kind = "exponential", mean_us = 2000.0 }

[broker]
set = { "doorkeeper.priority.ageing.ms" = 0 }

[[arms]]
name = "fifo"
scheduler = "fifo"

[[arms]]
name = "scfq"
scheduler = "scfq"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "little.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory):
    at = tmp_path_factory.mktemp("little")
    (at / "little.toml").write_text(CONFIG)
    recorded = run("experiment", "run", at / "little.toml", "--out", at / "recorded")
    assert recorded.exit_code == 0, recorded.output
    return at / "recorded"


@pytest.fixture
def directory(recorded_once, tmp_path):
    """Return a copy of the config's recording for one test."""
    return Path(shutil.copytree(recorded_once, tmp_path / "recorded"))


def run(*arguments):
    # Wide enough that no cell of the table wraps.
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(main, [str(each) for each in arguments])


def lines_of(result, *words):
    return [
        line
        for line in result.output.splitlines()
        if all(word in line for word in words)
    ]


def test_prediction_appears_with_measurement_in_both_worlds(config):
    """M/M/1 at load .5 with a mean service time of 2 ms: the mean wait is 2 ms."""
    result = run("theory", config)
    assert result.exit_code == 0, result.output
    for world in ("model", "virtual"):
        (line,) = lines_of(result, world, "fifo", "produce", MEAN_WAIT)
        assert "2 ms" in line
        assert "open" in line
        (line,) = lines_of(result, world, "scfq", "sum of size x wait", "fifo's")
        assert "agrees" in line
        assert lines_of(result, f"{world} scfq: no closed form")
    assert lines_of(result, "predictions: ", "met within 5%: ", "not met: 0,")


def test_a_recording_gives_the_table_that_running_it_gives(config, directory, tmp_path):
    read = run("theory", config, directory)
    ran = run("theory", config, "--world", "model")
    assert read.exit_code == ran.exit_code == 0
    assert lines_of(read, "model") == lines_of(ran, "model") != []
    other = tmp_path / "other.toml"
    other.write_text(CONFIG.replace('"little"', '"other"'))
    result = run("theory", other, directory)
    assert result.exit_code == 2
    assert "is a recording of little, not of other" in result.output


SESSIONS = """
[sessions]
count = 2
rounds = 2
primary = "produce"
"""


def test_rounds_of_a_session_share_a_file_and_are_distinguished(config, tmp_path):
    config.write_text(CONFIG.replace("blocks = 3\n", "") + SESSIONS)
    directory = tmp_path / "recorded"
    recorded = run("experiment", "run", config, "--out", directory)
    assert recorded.exit_code == 0, recorded.output
    read = run("theory", config, directory)
    ran = run("theory", config, "--world", "model")
    assert lines_of(read, "model") == lines_of(ran, "model") != []


def test_blocks_that_an_arm_has_missed_are_compared_in_no_arm(config, directory):
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    spoiled = next(it for it in manifest["runs"] if it["arm"] == "scfq")
    spoiled["valid"] = False
    path.write_text(json.dumps(manifest))
    (point,) = planned_points(load(config))
    found = [arm for arm, _ in recorded_runs(directory, point)]
    assert sorted(found) == ["fifo"] * 2 + ["scfq"] * 2


def test_a_damaged_recording_is_named(config, directory):
    manifest = directory / "manifest.json"
    sound = manifest.read_bytes()
    file = next(iter(sorted((directory / "requests").iterdir())))

    def said():
        result = run("theory", config, directory)
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
        return lines_of(result, "Error: ", str(directory))

    content = json.loads(sound)
    twice = json.dumps({**content, "runs": [*content["runs"], content["runs"][0]]})
    listed = json.dumps({**content, "runs": [0.5]})
    for damage in (b"", b"[1, 2]", b"\xff\xfe{}", twice.encode(), listed.encode()):
        manifest.write_bytes(damage)
        assert said(), damage
    manifest.write_bytes(sound)
    for damage in (b"", file.read_bytes()[:1000], b"dear diary"):
        file.write_bytes(damage)
        assert said(), damage


@pytest.mark.parametrize("margin", ["nan", "inf", "-0.05", "0"])
def test_a_margin_that_judges_nothing_is_refused(config, margin):
    result = run("theory", config, "--margin", margin)
    assert result.exit_code == 2
    assert lines_of(result, "Error: ", "--margin", "found")


def test_an_experiment_with_several_brokers_is_refused():
    config = Path(__file__).parents[2] / "experiments/configs/kafka-4453.toml"
    result = run("theory", config, "--world", "virtual")
    assert result.exit_code == 2
    assert lines_of(result, "Error: cluster: closed forms describe a single broker")


def measures(wait, *, path=1000, busy=0.5, work=0.001):
    return TrialMeasures(
        values={
            (BUSY_SERVERS, ""): busy,
            (WORK_X_WAIT, ""): work,
            (MEAN_WAIT, "produce"): wait,
            (P99_WAIT, "produce"): 0.01565,
        },
        moments={},
        path=path,
    )


def compared(config, fifo, scfq, world="model", margin=0.05):
    blocks = {"fifo": fifo, "scfq": scfq}
    return compare(load(config), world, "", blocks, margin)


GOOD = [measures(0.0019), measures(0.0021), measures(0.0020)]


def waits(found):
    return {row.arm: row for row in found.rows if row.quantity == MEAN_WAIT}


def test_agreement_is_an_interval_inside_the_margin(config):
    """The wait is 2 ms of 4 ms in system; four simultaneous rows: t(2) is 12.6."""
    tight = [measures(0.00200), measures(0.00201), measures(0.00202)]
    assert waits(compared(config, tight, GOOD))["fifo"].verdict == "agrees"
    narrow = compared(config, tight, GOOD, margin=0.001)
    assert waits(narrow)["fifo"].verdict == "open"


def test_an_interval_too_wide_to_contradict_shows_no_agreement(config):
    """Spread 0.1 ms, simultaneous half width 0.9 ms: a fifth of the time in system."""
    assert waits(compared(config, GOOD, GOOD))["fifo"].verdict == "open"
    (one,) = [measures(0.002)]
    assert waits(compared(config, [one], [one]))["fifo"].verdict == "open"


def test_a_ratio_outside_margin_and_interval_differs(config):
    bad = [measures(0.0039), measures(0.0041), measures(0.0040)]
    found = compared(config, bad, GOOD)
    assert found.contradicted
    row = waits(found)["fifo"]
    assert (row.reported, row.verdict) == ("produce", "differs")
    assert row.off == pytest.approx(0.5)
    assert not compared(config, GOOD, GOOD).contradicted
    # The error is half of the time in system; the interval exceeds a margin of 0.5.
    assert waits(compared(config, bad, GOOD, margin=0.5))["fifo"].verdict == "open"


def test_a_path_that_breaks_conservation_is_found(config):
    broken = [measures(0.002), measures(0.002, path=1001), measures(0.002)]
    found = compared(config, GOOD, broken)
    (row,) = [it for it in found.rows if it.verdict == "differs"]
    assert row.arm == "scfq"
    assert row.measured == pytest.approx(1e-3) != PATHWISE


def test_a_live_broker_is_shown_and_not_judged(config):
    found = compared(config, GOOD, GOOD, world="live")
    assert not found.contradicted
    assert {silence.reason for silence in found.silences} == {
        "the service of produce was not measured"
    }


def test_all_intervals_hold_at_once():
    """Student's t: 2.776 for 95 % and 4 degrees of freedom, 4.604 for 99 %."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    error = statistics.stdev(values) / 5**0.5
    assert interval(values, 0.95) == pytest.approx((3.0, 2.776 * error), rel=1e-3)
    assert interval(values, 0.99) == pytest.approx((3.0, 4.604 * error), rel=1e-3)
    assert interval([1.0], 0.95) == (1.0, float("inf"))


def test_measures_of_rows_by_hand():
    """Window 0 to 1 s; one request early, one timed out, one ended after the window."""
    ms = 1_000_000
    rows = pa.table(
        {
            "class": pa.array(["a", "a", "b", "a", "b"]).dictionary_encode(),
            "intended_ns": [-5 * ms, 100 * ms, 200 * ms, 300 * ms, 999 * ms],
            "client_done_ns": [5 * ms, 130 * ms, 220 * ms, None, 1009 * ms],
            "service_ns": [2 * ms, 10 * ms, 20 * ms, None, 4 * ms],
            "outcome": pa.array(
                ["ok", "ok", "ok", "timeout", "ok"]
            ).dictionary_encode(),
        }
    )
    found = measures_of(rows, [0, 1000 * ms])
    assert found.values[MEAN_WAIT, "a"] == pytest.approx(0.020)
    assert found.values[MEAN_WAIT, "b"] == pytest.approx(0.003)
    assert found.values[THROUGHPUT, "a"] == pytest.approx(2.0)
    assert found.values[THROUGHPUT, "b"] == pytest.approx(1.0)
    assert found.values[BUSY_SERVERS, ""] == pytest.approx(0.034)
    assert found.values[WORK_X_WAIT, ""] == pytest.approx(0.010 * 0.020 + 0.004 * 0.006)
    assert found.moments["b"].square == pytest.approx((400 + 16) / 2 * 1e-6)
    assert found.path is None
    kept = rows.filter(pa.array([True, True, True, False, True]))
    served = measures_of(kept, [0, ms])
    assert served.path == (2 * 8 + 10 * 20 + 0 + 4 * 6) * ms * ms
