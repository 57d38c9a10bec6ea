"""The requests page: metrics of a real broker, hostile metrics, no metrics."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp

from broker.observation.metric import Metric
from broker.observation.metrics.collector import Collector, Sources
from broker.observation.metrics.endpoint import Exposition
from broker.observation.metrics.request_metrics import RequestMetrics
from doorkeeper.web_console.broker_metrics import INFO, sample_of
from tests.virtual.world import LEADER_AND_ISR, PRODUCE, World, in_world
from tests.web_console.asgi_client import Answer, get
from tests.web_console.consoles import console_of_fake
from tests.web_console.fake_kafka import metrics_text

CLASSES = 10


async def page(app: ASGIApp, query: str = "") -> Answer:
    found = await get(app, f"/clusters/0/requests{query}")
    assert found.status == 200, found.text
    return found


def classes(answer: Answer) -> dict[tuple[str, str], list[str]]:
    """Return the cells of each class and plane."""
    rows = [it for it in answer.page.rows if len(it) == CLASSES + 2]
    return {(it[0], it[1]): it[2:] for it in rows[1:]}


# ---- values -------------------------------------------------------------------------


def served() -> tuple[str, list[Any]]:
    """Return the metrics of a real broker with two planes, and its requests."""

    async def scenario(world: World) -> tuple[str, list[Any]]:
        metrics, made = RequestMetrics(), Exposition()
        collector = Collector(
            Sources(
                requests=metrics,
                channels=tuple(world.server.request_channels.values()),
                processors=world.server.processors,
                pool=None,
                now_ns=world.clock.now_ns,
            )
        )
        for _ in range(10):
            await world.ask(world.connect(), PRODUCE)
            await world.ask(world.connect(world.control_listener()), LEADER_AND_ISR)
        for request in world.observer.requests:
            metrics.observe(request)
        labels = {"cluster_id": "cluster", "broker_id": "0"}
        made.add([Metric(name=INFO, kind="gauge", value=1, labels=labels)])
        made.add(collector.collect())
        return made.text(), world.observer.requests

    found: tuple[str, list[Any]] = in_world(
        scenario, {"doorkeeper.scheduler": "planes"}
    )
    return found


SERVED = served()


async def test_figures_are_those_of_the_requests(autojump_clock: object) -> None:
    text, requests = SERVED
    async with console_of_fake() as (app, kafka):
        kafka.metrics = text
        shown = await page(app)
    assert {("data", *["0"] * 5), ("control", *["0"] * 5)} <= {
        tuple(it) for it in shown.page.rows
    }
    for name, plane, key in (("produce", "data", 0), ("control", "control", 4)):
        own = [it.task for it in requests if it.api_key == key]
        phases = [it.phases() for it in own]

        def mean(*values: int) -> str:
            return f"{sum(values) / len(values) / 1e6:.2f}"

        cells = classes(shown)[name, plane]
        assert cells[:5] == [
            "none",
            mean(*(it.request_queue_ns for it in phases)),
            mean(*(it.local_ns for it in phases)),
            mean(*(it.suspended_ns for it in phases)),
            mean(*(it.total_ns for it in phases)),
        ]
        assert float(cells[6]) == sum(it.preemptions for it in own) / len(own)
        assert cells[-1] == str(len(own)) == "10"


async def test_rates_and_means_are_those_between_two_readings(
    autojump_clock: object,
) -> None:
    key = ("class", "plane")
    async with console_of_fake() as (app, kafka):
        kafka.metrics = metrics_text(lambda it: it, requests=100)
        first = await page(app)
        # Each request: no wait, 1 ms of service, half a preemption.
        assert classes(first)[key][:3] == ["none", "0.00", "1.00"]
        assert classes(first)[key][-3:] == ["77.50", "none", "100"]
        await trio.sleep(10)
        kafka.metrics = metrics_text(lambda it: it, requests=150)
        second = await page(app)
        assert classes(second)[key][:3] == ["5.00", "0.00", "1.00"]
        assert classes(second)[key][6] == "0.50"
        assert "over the last 10 s" in " ".join(second.page.words)
        assert len(second.page.lines) == 1
        await trio.sleep(10)
        third = await page(app)
        assert classes(third)[key][0] == "2.50"
        # All samples except this one have left the window.
        await trio.sleep(61)
        assert classes(await page(app))[key][0] == "none"
        await trio.sleep(10)
        idle = classes(await page(app))[key]
        assert idle[:7] == ["0.00", *["none"] * 6]
        # The broker was restarted.
        kafka.metrics = metrics_text(lambda it: it, requests=30)
        await trio.sleep(10)
        again = await page(app)
        assert classes(again)[key][0] == "none"
        assert classes(again)[key][-1] == "30"


async def test_an_endpoint_is_asked_at_most_every_two_seconds(
    autojump_clock: object,
) -> None:
    async with console_of_fake() as (app, kafka):
        for _ in range(5):
            await page(app)
        assert kafka.scrapes == 1
        await trio.sleep(2.1)
        await page(app)
        assert kafka.scrapes == 2


async def test_the_scheduler_and_its_options_are_shown(autojump_clock: object) -> None:
    async with console_of_fake() as (app, _):
        rows = (await page(app)).page.rows
    assert ["0", "scheduler", "4", "read"] in rows
    assert ["doorkeeper.scheduler", "scheduler", "broker's file, read-only"] in rows
    assert ["doorkeeper.wfq.weights", "weights", "broker's file, read-only"] in rows
    assert ["class", "plane", "verdict", "9"] in rows
    assert not any("metrics.port" in it[0] for it in rows)


# ---- brokers without metrics --------------------------------------------------------


async def test_a_broker_of_kafka_has_no_metrics_and_is_not_asked(
    autojump_clock: object,
) -> None:
    async with console_of_fake() as (app, kafka):
        kafka.own_configs = {}
        shown = await page(app)
        assert kafka.scrapes == 0
    assert "is not a broker of Doorkeeper" in " ".join(shown.page.words)
    assert ["0", "Kafka's queue", "unknown", "not served"] in shown.page.rows


@pytest.mark.parametrize(
    ("port", "why"),
    [
        (None, "doorkeeper.metrics.port is not set"),
        ("", "doorkeeper.metrics.port is not set"),
        ("0", "the console does not know the port"),
        ("-1", "is not a port"),
        ("<b>", "is not a port"),
        ("٩", "is not a port"),
        ("999999", "is not a port"),
        ("9404", "nothing at 127.0.0.1:9404 answers"),
    ],
)
async def test_a_port_that_cannot_be_read_is_named(
    port: str | None, why: str, autojump_clock: object
) -> None:
    async with console_of_fake() as (app, kafka):
        kafka.own_configs["doorkeeper.metrics.port"] = port
        kafka.send_metrics = None
        shown = await page(app)
    assert why in " ".join(shown.page.words)
    assert shown.page.rows[-2][:2] == ["doorkeeper.scheduler", "scheduler"]


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


async def _silent(stream: Any) -> None:
    await trio.sleep_forever()


async def _endless(stream: Any) -> None:
    await stream.receive_some()
    await stream.send_all(HEAD)
    with suppress(trio.BrokenResourceError):
        while True:
            await stream.send_all(b'doorkeeper_plane_waiting{plane="x"} 1\n' * 10_000)


def _sends(answer: bytes) -> Callable[[Any], Awaitable[None]]:
    async def send(stream: Any) -> None:
        await stream.receive_some()
        await stream.send_all(answer)
        await stream.aclose()

    return send


@pytest.mark.parametrize(
    ("send", "why"),
    [
        (None, "nothing at 127.0.0.1:9404 answers"),
        (_silent, "nothing at 127.0.0.1:9404 answers"),
        (_endless, "too large"),
        (_sends(b""), "holds no metrics"),
        (_sends(b"SSH-2.0-OpenSSH_9.9\r\n"), "holds no metrics"),
        (_sends(b"HTTP/1.1 404 Not Found\r\n\r\n"), "holds no metrics"),
        (_sends(HEAD), "not that of this broker"),
        (_sends(HEAD + bytes(range(256)) * 100), "not that of this broker"),
    ],
)
async def test_an_endpoint_that_is_none_is_a_sentence(
    send: Callable[[Any], Awaitable[None]] | None, why: str, autojump_clock: object
) -> None:
    async with console_of_fake() as (app, kafka):
        kafka.send_metrics = send
        began_s = trio.current_time()
        shown = await page(app)
        assert trio.current_time() - began_s < 4
    assert why in " ".join(shown.page.words)


@pytest.mark.parametrize(
    "labels",
    [
        {"cluster_id": "another", "broker_id": "0"},
        {"cluster_id": "cluster", "broker_id": "1"},
        {"cluster_id": "cluster"},
    ],
)
async def test_figures_of_another_broker_are_not_shown(
    labels: dict[str, str], autojump_clock: object
) -> None:
    async with console_of_fake() as (app, kafka):
        info, rest = kafka.metrics.split("\n", 2)[1:]
        assert info.startswith(INFO)
        made = Exposition()
        made.add([Metric(name=INFO, kind="gauge", value=1, labels=labels)])
        for text in (made.text() + rest, kafka.metrics + made.text()):
            kafka.metrics = text
            shown = await page(app)
            assert "not that of this broker" in " ".join(shown.page.words)
            assert classes(shown) == {}
            await trio.sleep(3)


async def test_a_broker_is_chosen_by_its_id(autojump_clock: object) -> None:
    async with console_of_fake() as (app, _):
        (link,) = (it for it in (await page(app)).page.links if "?id=0" in it)
        assert (await get(app, link)).status == 200
        assert (await get(app, "/clusters/0/requests?id=1")).status == 404


# ---- hostile text and numbers -------------------------------------------------------

PREFIX = "doorkeeper_requestmetrics_"
FORGED = 'doorkeeper_plane_waiting{plane="forged"} 9'


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
async def test_a_name_forges_no_sample(end: str, autojump_clock: object) -> None:
    def text(name: str) -> str:
        return f"x{end}{FORGED}{end}" if name in ("class", "plane") else name

    async with console_of_fake(text) as (app, _):
        shown = await page(app)
    assert "forged" not in [it[0] for it in shown.page.rows]
    assert len(classes(shown)) == 1


@pytest.mark.parametrize(
    "written",
    ["NaN", "+Inf", "-Inf", "-5", "1e308", "1e-308", "1_0", "0x10", "", "٣", "9" * 40],
)
async def test_a_number_of_any_kind_is_a_page(
    written: str, autojump_clock: object
) -> None:
    async with console_of_fake() as (app, kafka):
        info, *rest = kafka.metrics.rstrip("\n").split("\n")[1:]
        changed = (f"{it.rpartition(' ')[0]} {written}" for it in rest)
        kafka.metrics = "\n".join((info, *changed))
        for _ in range(2):
            shown = await page(app)
            assert "not that of this broker" not in " ".join(shown.page.words)
            assert not {"nan", "inf"} & {
                word for row in shown.page.rows for word in row
            }
            await trio.sleep(3)


async def test_of_many_classes_some_are_shown(autojump_clock: object) -> None:
    async with console_of_fake() as (app, kafka):
        kafka.metrics += "".join(
            f'{PREFIX}totaltimems_count{{class="{it}",plane="{it}"}} 1\n'
            f'doorkeeper_plane_waiting{{plane="{it}"}} 1\n'
            for it in range(5_000)
        )
        shown = await page(app)
    assert len(classes(shown)) == 100
    assert len(shown.page.rows) < 400


_NAMES = st.from_regex(r"[a-z_]{1,9}", fullmatch=True)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(_NAMES, _TEXTS, max_size=3), st.floats(0, 1e9))
def test_labels_are_read_as_they_were_written(
    labels: dict[str, str], value: float
) -> None:
    made = Exposition()
    made.add([Metric(name="a", kind="gauge", value=value, labels=labels)])
    _, line, _ = made.text().split("\n")
    found = sample_of(line)
    assert found is not None
    assert (found[0], found[1].labels, found[1].value) == ("a", labels, value)


@given(st.text(st.sampled_from('ab_{}"\\,= 1e.+-n\n'), max_size=30))
def test_any_line_is_a_sample_or_none(line: str) -> None:
    found = sample_of(line)
    if found is not None:
        name, sample = found
        assert math.isfinite(sample.value)
        (family,) = text_string_to_metric_families(f"{line}\n")
        ((theirs, labels, value, *_),) = family.samples
        assert (name, dict(sample.labels)) == (theirs, labels)
        assert sample.value == max(value, 0)
