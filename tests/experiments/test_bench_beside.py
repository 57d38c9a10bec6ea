"""Rows of `make bench` for brokers: order of measurement, and ratios."""

import os
import time
from contextlib import contextmanager, nullcontext

import psutil
import pytest

from bench import beside, brokers, small_requests
from bench.beside import Measure
from bench.brokers import Running
from bench.row import paired
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.hot import ProducePartition, encode_produce_response
from experiments.load import load_requests as requests
from experiments.worlds.kafka import apache_kafka


def running(name, start_s=1.0):
    return Running(
        name=name, port=0, process=psutil.Process(os.getpid()), start_s=start_s
    )


def started(name, start_s):
    @contextmanager
    def start():
        yield running(name, start_s)

    return start


def test_a_ratio_is_the_median_of_its_rounds_and_above_one_where_we_are_better():
    more = paired("r", "1/s", [10, 40, 20], "p", [10, 10, 10], more_is_better=True)
    assert (more.ours, more.theirs, more.ratio) == (20, 10, 2)
    less = paired("t", "s", [10, 40, 20], "p", [10, 10, 10], more_is_better=False)
    assert less.ratio == 0.5


def test_the_cpu_of_a_broker_is_the_kernels_count_of_its_process():
    before_s, broker = time.process_time(), running("doorkeeper")
    measured_s = broker.cpu_s()
    assert before_s <= measured_s <= time.process_time()


def test_a_peer_that_is_not_here_is_named_and_left_out(monkeypatch, capsys):
    def none(version):
        raise apache_kafka.NoKafka("no such jars")

    monkeypatch.setattr(apache_kafka, "jars", none)
    monkeypatch.setattr(brokers.importlib.util, "find_spec", lambda name: None)
    assert brokers.peers() == {}
    said = capsys.readouterr().err
    assert "left out: no such jars" in said
    assert "left out: tansu" in said


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (["doorkeeper", "kafka", "tansu"], {"doorkeeper", "kafka"}),
        (["doorkeeper", "tansu"], set()),
    ],
)
def test_kafkas_tools_are_run_only_where_kafka_is(names, asked):
    by_java = Measure(name="", units=("MB/s",), take=lambda _: [1], by_java=True)
    plain = Measure(name="", units=("MB/s",), take=lambda _: [1])
    each = [running(name) for name in names]
    assert {it.name for it in each if by_java.applies_to(it, names)} == asked
    assert all(plain.applies_to(it, names) for it in each)


@pytest.fixture
def bench(monkeypatch):
    """The suite with one measure instead of loads: the broker's start time."""
    measure = Measure(
        name=f"PRODUCE of one record, acks=1, {beside._TAIL_CONNECTIONS} connections",
        units=("requests/s",),
        take=lambda broker: [broker.start_s * 1_000],
    )
    monkeypatch.setattr(beside, "_measures", lambda: iter([measure]))
    monkeypatch.setattr(beside, "_warm_up", lambda broker: None)
    monkeypatch.setattr(beside, "_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(beside, "on_the_load_cpu", nullcontext)
    monkeypatch.setattr(beside, "doorkeeper", started("doorkeeper", 2.0))
    monkeypatch.setattr(beside, "p99_ms", lambda broker, rate, *_: rate)

    def run(peers):
        monkeypatch.setattr(beside, "peers", lambda: peers)
        return {(row.peer, row.name): row for row in beside.rows()}

    return run


def test_without_any_peer_the_suite_ends_without_a_row(bench):
    assert bench({}) == {}


def test_every_peer_is_compared_with_us_under_its_own_title(bench):
    found = bench({"Peer 1": started("kafka", 4.0), "Peer 2": started("tansu", 1.0)})
    start = "start to first answer"
    assert found["Peer 1", start].ratio == 2
    assert found["Peer 2", start].ratio == 0.5
    produce = "PRODUCE of one record, acks=1, 16 connections"
    assert found["Peer 1", produce].ratio == 0.5
    # Half of the rate of the slower broker: first ours, then the peer's.
    assert ("Peer 1", "p99 of PRODUCE at 1000/s, 16 connections") in found
    assert ("Peer 2", "p99 of PRODUCE at 500/s, 16 connections") in found


def test_an_answer_with_an_error_ends_the_load():
    def answer(error_code):
        row = ProducePartition(0, error_code, 5)
        version = requests.version(ApiKey.PRODUCE)
        return encode_produce_response(version, 1, [(small_requests.TOPIC, [row])])

    small_requests.check_produced(answer(0))
    with pytest.raises(RuntimeError, match="the broker answered"):
        small_requests.check_produced(answer(6))
