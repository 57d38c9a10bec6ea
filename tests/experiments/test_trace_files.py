"""External traces: validated line by line, replayed unchanged, in windows."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from doorkeeper.cli import main
from experiments.design import config_file, trace_file
from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError
from experiments.load import trace
from experiments.running.launching import run_experiment
from experiments.worlds.model.model_world import Model
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial, RunFiles
from schedulers import POLICIES
from tests.experiments.unwatched import Unwatched

HEADER = "arrival_s,class,flow,service_us"
Row = tuple[float, str, str, float]

TOML = """
[experiment]
name = "elsewhere"
seed = 5
blocks = {blocks}
baseline = "fifo"
again = false
world = "model"

[workload]
trace = "{trace}"
duration_s = 1.0
{workload}

[[workload.traffic]]
name = "urgent"
class = "urgent"
request = {{ api = "leader-and-isr" }}
connections = 300
clients = 3

[[workload.traffic]]
name = "bulk"
class = "bulk"
request = {{ api = "produce" }}
connections = 300
clients = 3

[broker]
set = {{ "queued.max.requests" = 1000, "doorkeeper.slice.ms" = 0 }}

[[arms]]
name = "fifo"
scheduler = "fifo"
{more}
"""


def rows(seconds: float = 3.2, seed: int = 1) -> list[Row]:
    """Draw requests with ties, of two classes and three flows, at a load of 0.7."""
    rng = random.Random(seed)
    found: list[Row] = []
    at_s = 5.0
    while at_s < 5.0 + seconds:
        name = rng.choice(["urgent", "bulk"])
        found.append(
            (at_s, name, f"tenant {rng.randrange(3)}", rng.randrange(100, 6900) / 4)
        )
        at_s = round(at_s + rng.choice([0.0, rng.expovariate(400)]), 6)
    return found


def write(path: Path, requests: Sequence[Row]) -> Path:
    with path.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(HEADER.split(","))
        writer.writerows(requests)
    return path


def config(
    directory: Path, name: str, blocks: int = 3, workload: str = "", more: str = ""
) -> Path:
    path = directory / "config.toml"
    path.write_text(
        TOML.format(trace=name, blocks=blocks, workload=workload, more=more)
    )
    return path


def loaded(directory: Path, requests: Sequence[Row], **keys: str) -> Experiment:
    write(directory / "t.csv", requests)
    return config_file.load(config(directory, "t.csv", **keys))


# ---- the validator -----------------------------------------------------------------

GOOD = ["0.0,urgent,a,10", "0.9,bulk,b,20", "1.5,urgent,a,5", "1.6,bulk,b,5"]
REFUSED: Mapping[str, tuple[list[str], str]] = {
    "missing column": (
        ["arrival_s,class,service_us", "0,urgent,1"],
        "line 1: there is no column 'flow' among arrival_s, class, service_us",
    ),
    "column twice": (
        [HEADER + ",flow", "0,urgent,a,1,b"],
        "line 1: there is more than one column 'flow' among",
    ),
    "empty file": ([], "is empty"),
    "no requests": ([HEADER], "has no requests"),
    "too few values": (
        [HEADER, *GOOD, "1.7,bulk"],
        "line 6: 2 values, expected 4 as in line 1",
    ),
    "no number": (
        [HEADER, *GOOD, "1.7,bulk,b,fast"],
        "line 6, service_us: found 'fast', expected a number",
    ),
    "NaN": (
        [HEADER, GOOD[0], "", "nan,bulk,b,1"],
        "line 4, arrival_s: found nan, expected at least 0",
    ),
    "negative arrival": (
        [HEADER, "-1,urgent,a,1"],
        "line 2, arrival_s: found -1, expected at least 0",
    ),
    "negative service": (
        [HEADER, *GOOD, "1.7,bulk,b,-3"],
        "line 6, service_us: found -3, expected a number from 0.001 to 1e+10",
    ),
    "infinite service": (
        [HEADER, *GOOD, "1.7,bulk,b,inf"],
        "line 6, service_us: found inf, expected a number from 0.001 to 1e+10",
    ),
    "unsorted": (
        [HEADER, *GOOD, "1.55,bulk,b,3"],
        "line 6, arrival_s: 1.55 comes after 1.6; requests have to be in order",
    ),
    "no flow": ([HEADER, GOOD[0], "0.1,bulk,,3"], "line 3, flow: there is no value"),
    "unknown class": (
        [HEADER, *GOOD, "1.7,batch,b,3"],
        "line 6, class: no traffic entry replays 'batch', only urgent, bulk",
    ),
    "too many flows": (
        [HEADER, *GOOD, "1.7,bulk,c,3", "1.7,bulk,d,3", "1.7,bulk,e,3"],
        "line 8, flow: 'e' is one of 4 flows of 'bulk', and "
        "workload.traffic['bulk'].clients is 3",
    ),
    "too short": (
        [HEADER, *GOOD],
        "lasts 1.6 s, and 2 blocks of 1 s need 2 s; it has 1 such windows",
    ),
    "empty window": (
        [HEADER, *GOOD, "2.1,urgent,a,4", "3.1,urgent,a,4"],
        "has no request of 'bulk' after the warm-up of block 2, which begins at 2 s",
    ),
    "no text": ([HEADER, *GOOD, "1.7,bulk,\udcff,3"], "line 6, flow: found"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_trace_is_refused_in_one_sentence_with_file_line_and_column(
    tmp_path: Path, name: str
) -> None:
    lines, words = REFUSED[name]
    text = "".join(f"{line}\n" for line in lines)
    (tmp_path / "bad.csv").write_bytes(text.encode(errors="surrogateescape"))
    blocks = {"too short": 2, "empty window": 3}.get(name, 1)
    made = config(tmp_path, "bad.csv", blocks=blocks)
    found = CliRunner().invoke(main, ["experiment", "validate", str(made)])
    assert found.exit_code == 2, found.output
    last = found.output.splitlines()[-1]
    assert last.startswith("Error: ")
    assert "bad.csv" in last
    assert words in last


def test_faults_of_a_parquet_file_name_row_and_column(tmp_path: Path) -> None:
    columns = dict(zip(HEADER.split(","), zip(*rows(), strict=True), strict=True))
    path = tmp_path / "t.parquet"

    def refusal(**changed: object) -> str:
        pq.write_table(pa.table({**columns, **changed}), path)
        with pytest.raises(ExperimentError) as caught:
            trace_file.read(path)
        return str(caught.value)

    services = list(columns["service_us"])
    assert refusal(service_us=[*services[:6], -1.0, *services[7:]]).endswith(
        "t.parquet: row 7, service_us: found -1, expected a number from 0.001 to 1e+10"
    )
    assert refusal(service_us=[*services[:6], None, *services[7:]]).endswith(
        "row 7, service_us: there is no value"
    )
    assert refusal(arrival_s=[*map(str, range(len(services) - 1)), "x"]).endswith(
        "column 'arrival_s' is string, expected double"
    )
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(ExperimentError, match=r"t\.parquet"):
        trace_file.read(path)


def test_a_huge_file_is_refused_by_requests_and_memory_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.csv", rows())
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 10_000}
    monkeypatch.setattr(trace_file.os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(trace_file, "_csv", lambda path: pytest.fail("was read"))
    with pytest.raises(ExperimentError) as caught:
        trace_file.read(path)
    count = len(rows()) + 1
    assert f"has {count:,} requests; reading them takes" in str(caught.value)
    assert "reads at most 20" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"world": "live"},
            "workload.trace: its service times cannot be imposed on the live world",
        ),
        (
            {
                "faults": [
                    {"kind": "scale-load", "at_s": 0.1, "until_s": 1, "factor": 2}
                ]
            },
            "faults[0]: a trace cannot arrive faster",
        ),
        ({"trace": None}, "workload: 'urgent' has no arrivals, and there is no trace"),
        ({"start_s": 0.5}, "start_s and stop_s do not apply to a trace"),
        (
            {"service": {"kind": "constant", "mean_us": 5}},
            "service: a trace has its own service times",
        ),
        ({"class": "bulk"}, "two traffic entries replay the class 'bulk'"),
    ],
)
def test_settings_that_a_trace_excludes_are_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    content = loaded(tmp_path, rows()).content()
    for key, value in changes.items():
        table = {
            "world": content["experiment"],
            "faults": content,
            "trace": content["workload"],
        }.get(key, content["workload"]["traffic"][0])
        table[key] = value
    if changes == {"trace": None}:
        content["workload"]["trace_sha256"] = None
    with pytest.raises(ExperimentError) as caught:
        parse(content)
    assert words in str(caught.value)


# ---- the replay --------------------------------------------------------------------


def replayed(experiment: Experiment, block: int) -> pa.Table:
    return trace.generate(experiment, block).table


def test_blocks_are_consecutive_windows_of_the_file(tmp_path: Path) -> None:
    """The blocks partition the file: times, classes, flows, services."""
    requests = rows()
    built = loaded(tmp_path, requests)
    found = []
    for block in range(3):
        table = replayed(built, block)
        instants = table["intended_ns"].to_numpy()
        assert instants.min() >= 0
        assert instants.max() < 1e9
        found += list(
            zip(
                (instants + block * 10**9).tolist(),
                table["class"].to_pylist(),
                table["flow"].to_pylist(),
                table["demand_ns"].to_pylist(),
                strict=True,
            )
        )
    expected = [
        (round((at_s - 5.0) * 1e9), name, flow, round(cost_us * 1000))
        for at_s, name, flow, cost_us in requests
        if at_s - 5.0 < 3.0
    ]
    assert len(found) > 1000
    # Simultaneous requests are in the order of the traffic entries.
    assert sorted(found) == sorted(expected)
    assert [it[0] for it in found] == sorted(it[0] for it in found)


def test_parquet_and_csv_with_other_columns_draw_the_same_trace(tmp_path: Path) -> None:
    requests = rows()
    first = replayed(loaded(tmp_path, requests), 1)
    table = arrow_csv.read_csv(tmp_path / "t.csv")
    tokens = table.append_column("tokens", pa.array(range(table.num_rows)))
    pq.write_table(tokens, tmp_path / "t.parquet")
    second = replayed(config_file.load(config(tmp_path, "t.parquet")), 1)
    assert first.equals(second)


def test_connections_belong_to_one_flow_and_take_turns(tmp_path: Path) -> None:
    table = replayed(loaded(tmp_path, rows()), 0).to_pandas()
    assert (table.groupby("connection", observed=True).flow.nunique() == 1).all()
    for _, of_flow in table.groupby(["class", "flow"], observed=True):
        assert len(of_flow) > 50
        turns = of_flow.connection.tolist()
        used = turns[: len(set(turns))]
        assert turns == [used[n % len(used)] for n in range(len(turns))]


def test_speed_divides_instants_and_not_service_times(tmp_path: Path) -> None:
    plain = loaded(tmp_path, rows())
    content = plain.content()
    content["workload"] |= {"trace_speed": 2.0, "duration_s": 0.5}
    fast = parse(content)
    one, other = replayed(plain, 1), replayed(fast, 1)
    assert other["intended_ns"].to_pylist() == [
        at // 2 for at in one["intended_ns"].to_pylist()
    ]
    assert one["demand_ns"].equals(other["demand_ns"])
    rate = plain.workload.mean_rate_per_s(plain.workload.traffic[0])
    assert fast.workload.mean_rate_per_s(fast.workload.traffic[0]) == 2 * rate


def played(
    experiment: Experiment, world: Model | Virtual, arm: str, directory: Path
) -> pa.Table:
    files = RunFiles(requests=directory / "r.parquet", samples=directory / "s.parquet")
    trial = MachineTrial(experiment=experiment, block=1, arm=experiment.arm(arm))
    drawn = trace.generate(experiment, 1)
    result = world.run(trial, drawn, files)
    assert result.valid, result.reason
    assert result.trace_sha256 == drawn.sha256
    return pq.read_table(files.requests)


@pytest.mark.parametrize("world", ["model", "virtual"])
def test_waits_under_fifo_are_lindleys(tmp_path: Path, world: str) -> None:
    """One CPU serves the file's requests in order: W' = max(0, W + S - gap)."""
    built = loaded(tmp_path, rows())
    made = Model(lambda: None) if world == "model" else Virtual()
    found = played(built, made, "fifo", tmp_path).to_pandas()
    drawn = replayed(built, 1).to_pandas()
    free_ns, ends, idle_from = 0, [], []
    for at_ns, cost_ns in zip(drawn.intended_ns, drawn.demand_ns, strict=True):
        if at_ns > free_ns:
            idle_from.append(free_ns)
        free_ns = max(free_ns, at_ns) + cost_ns
        ends.append(free_ns)
    done = found.client_done_ns.tolist()
    if world == "model":
        assert done == ends
    # The broker polls ready connections in an order of its own, which does not change
    # busy periods.
    assert len(idle_from) > 50
    assert {*idle_from[1:], free_ns} <= set(done)
    assert max(done) == free_ns


@pytest.mark.parametrize(
    ("world", "names"),
    [
        ("model", sorted({*POLICIES, "planes", "planes-lending"} - {"fifo"})),
        ("virtual", ["planes", "planes-lending", "priority", "wfq"]),
    ],
    ids=["model", "virtual"],
)
def test_policies_replay_the_trace_and_serve_all_of_it(
    tmp_path: Path, world: str, names: list[str]
) -> None:
    """The whole broker runs the preset policies only."""
    more = "".join(
        f'[[arms]]\nname = "{name.replace("+", "p")}"\nscheduler = "{name}"\n'
        for name in names
    )
    made = Model(lambda: None) if world == "model" else Virtual()
    built = loaded(tmp_path, rows()[:: 1 if world == "model" else 10], more=more)
    demands = sorted(replayed(built, 1)["demand_ns"].to_pylist())
    for arm in built.arms:
        found = played(built, made, arm.name, tmp_path)
        assert set(found["outcome"].to_pylist()) == {"ok"}, arm.name
        if world == "model":
            assert sorted(found["service_ns"].to_pylist()) == demands, arm.name


# ---- runs --------------------------------------------------------------------------


def test_a_run_is_resumed_by_the_traces_hash_wherever_the_file_is(
    tmp_path: Path,
) -> None:
    built = loaded(tmp_path, rows())
    out = tmp_path / "out"

    def run(experiment: Experiment) -> list[dict[str, object]]:
        assert not run_experiment(
            experiment, out, Unwatched(), resume=True, executor="sequential"
        )
        manifest = json.loads((out / "manifest.json").read_text())
        runs: list[dict[str, object]] = manifest["runs"]
        sha256 = manifest["config"]["workload"]["trace_sha256"]
        assert sha256 == trace_file.digest(tmp_path / "t.csv")
        return runs

    first = run(built)
    assert len(first) == 3
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = loaded(elsewhere, rows())
    assert moved.sha256() == built.sha256()
    assert run(moved) == first
    with pytest.raises(ExperimentError, match=r"workload.trace_sha256: .* recorded"):
        run(loaded(tmp_path, rows(seed=2)))


def test_a_trace_that_changed_after_its_config_was_read_is_refused(
    tmp_path: Path,
) -> None:
    built = loaded(tmp_path, rows())
    write(tmp_path / "t.csv", rows(seed=2))
    trace_file.recorded.cache_clear()
    with pytest.raises(ExperimentError, match=r"its SHA-256 is .*, expected "):
        trace.generate(built, 0)
    pinned = config(tmp_path, "t.csv", workload=f'trace_sha256 = "{"0" * 64}"')
    with pytest.raises(ExperimentError, match=r"expected 0{64}"):
        config_file.load(pinned)
    with pytest.raises(ExperimentError, match="No such file"):
        config_file.load(config(tmp_path, "absent.csv"))


def test_traffic_of_a_trace_and_of_a_process_share_a_run(tmp_path: Path) -> None:
    content = loaded(tmp_path, rows()).content()
    storm = {
        "name": "storm",
        "connections": 4,
        "arrivals": {"kind": "constant", "rate_per_s": 50},
        "request": {"api": "metadata"},
        "service": {"kind": "constant", "mean_us": 10},
    }
    content["workload"]["traffic"].append(storm)
    found = replayed(parse(content), 2).to_pandas()
    assert (found.traffic == "storm").sum() == 50
    assert {"urgent", "bulk"} < set(found.traffic)
    assert found.intended_ns.is_monotonic_increasing
