"""Rows of `make bench` for security: pairs, differences, and suites by name."""

import json
import os
from contextlib import contextmanager, nullcontext

import psutil
import pytest

from bench import __main__ as command
from bench import security
from bench.brokers import Running
from bench.row import BenchRow


@pytest.fixture
def two_brokers(monkeypatch):
    """Brokers that spend 20 us on a request, or 22 us with an authorizer.

    In every third pair, both cost 10 us more, as beside a busy neighbour.
    """
    started, asked = [], []

    @contextmanager
    def doorkeeper(data=None, settings=None):
        process = psutil.Process(os.getpid())
        started.append(dict(settings or {}))
        yield Running(name="doorkeeper", port=len(started), process=process, start_s=0)

    def saturated(broker, connections, seconds):
        asked.append(broker.port)
        pair = (len(asked) - 1) // 2
        has_authorizer = "authorizer.class.name" in started[broker.port - 1]
        spent_us = 20 + 2 * has_authorizer + 10 * (pair % 3 == 0)
        return 0, 1e6 / spent_us

    monkeypatch.setattr(security, "doorkeeper", doorkeeper)
    monkeypatch.setattr(security, "saturated", saturated)
    monkeypatch.setattr(security, "on_the_load_cpu", nullcontext)
    monkeypatch.setattr(security.clients, "create_topic", lambda *_: None)
    monkeypatch.setattr(security, "_create_entries", lambda broker: None)
    monkeypatch.setattr(security, "closed_loop", lambda *_: None)
    monkeypatch.setattr(Running, "pin", lambda broker: None)
    return started, asked


def test_the_cost_of_authorization_is_the_median_difference_of_pairs(two_brokers):
    started, asked = two_brokers
    both, added = security._authorization()
    assert (both.ours, both.theirs) == (pytest.approx(22), pytest.approx(20))
    assert both.ratio == pytest.approx(20 / 22)
    assert added.ours == pytest.approx(2)
    assert added.ratio == pytest.approx(1.5)
    # The first start has a super user, who creates the ACLs; later starts have none.
    assert ["super.users" in settings for settings in started] == [True, False, False]
    # The order within pairs alternates.
    assert asked[:4] in ([2, 3, 3, 2], [3, 2, 2, 3])


def test_suites_run_by_their_names_into_a_file_of_their_own(monkeypatch, tmp_path):
    def suite(name):
        row = BenchRow(name=name, unit="s", ours=1, peer="p", theirs=1, ratio=1)
        return lambda: iter([row])

    monkeypatch.setattr(command, "SUITES", {name: suite(name) for name in "abc"})
    for names, file, rows in (
        (["c"], "bench-c.json", ["c"]),
        ((), "bench.json", ["a", "b", "c"]),
    ):
        command.main(names, tmp_path)
        found = json.loads((tmp_path / file).read_text())["rows"]
        assert [row["name"] for row in found] == rows
    with pytest.raises(SystemExit, match="no suite d; there are a, b, c"):
        command.main(["d"], tmp_path)
