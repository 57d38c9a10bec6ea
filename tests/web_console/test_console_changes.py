"""Changes by the console against real brokers in virtual time, and authorization.

The assertions are on the brokers' own state.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import trio
from starlette.types import ASGIApp

from broker.client.consumer.consumer_commits import OffsetAndMetadata
from broker.config import DOORKEEPER_PRIORITY_AGEING_MS, DOORKEEPER_WFQ_WEIGHTS
from broker.node.broker import Broker
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.actions import ACTIONS
from doorkeeper.web_console.pages import PAGES
from tests.virtual.members import Members, in_sync, numbers, send, with_members
from tests.web_console.asgi_client import Answer, carry_out, get, post
from tests.web_console.consoles import console_of, console_of_fake
from tests.web_console.fake_kafka import CHANGING
from tests.web_console.test_console_hostile import HOSTILE, harmless

RATE = "follower.replication.throttled.rate"


def beside_three(
    scenario: Callable[[Members, ASGIApp], Awaitable[None]], **settings: str
) -> None:
    """Run ``scenario`` beside three brokers and a console that may change them."""

    async def run(members: Members) -> None:
        opened = console_of(
            members.bootstrap,
            members.connect,
            allow_changes=True,
            reconnect_backoff_max_ms=50,
        )
        await members.until(lambda: members.controller is not None)
        async with opened as app:
            await scenario(members, app)

    with_members(run, **settings)


async def changed(app: ASGIApp, action: str, **values: str) -> Answer:
    """Carry out a change; check that it succeeds."""
    found = await carry_out(app, action, **values)
    assert (found.status, "Carried out:" in found.page.words) == (200, True), (
        found.page.words
    )
    return found


def arguments(page: Answer) -> list[str]:
    """Return the words of the page's only command, without the broker."""
    program, option, _, *words = shlex.split(page.page.blocks[0])
    assert option == "--bootstrap-server"
    return [program, *words]


# ---- topics and configs -------------------------------------------------------------


def test_a_topic_is_created_altered_and_deleted() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        found = await changed(
            app,
            "create-topic",
            name="a.b",
            partitions="2",
            replicas="3",
            configs="retention.ms=77\r\ncleanup.policy=compact,delete",
        )
        words = ["--create", "--topic", "a.b", "--partitions", "2"]
        words += ["--replication-factor", "3", "--config", "retention.ms=77"]
        words += ["--config", "cleanup.policy=compact,delete"]
        assert arguments(found) == ["kafka-topics.sh", *words]
        await in_sync(members, "a.b", 1)
        log = members.partition(members.leader("a.b"), "a.b").log
        assert log.config.retention_ms == 77

        found = await changed(app, "add-partitions", name="a.b", count="5")
        words = ["--alter", "--topic", r"a\.b", "--partitions", "5"]
        assert arguments(found) == ["kafka-topics.sh", *words]
        await members.until(lambda: members.leader("a.b", 4) >= 0)

        found = await changed(
            app,
            "topic-configs",
            name="a.b",
            set="max.message.bytes=99999\ncleanup.policy=delete,compact",
            delete="retention.ms",
        )
        words = ["--alter", "--entity-type", "topics", "--entity-name", "a.b"]
        words += ["--add-config"]
        words += ["max.message.bytes=99999,cleanup.policy=[delete,compact]"]
        words += ["--delete-config", "retention.ms"]
        assert arguments(found) == ["kafka-configs.sh", *words]
        await members.until(lambda: log.config.retention_ms == 604_800_000)
        assert log.config.max_message_bytes == 99_999

        found = await changed(app, "delete-topic", name="a.b")
        assert arguments(found) == ["kafka-topics.sh", "--delete", "--topic", r"a\.b"]
        await members.until(
            lambda: not any(members.broker(it).logs.logs for it in members.alive)
        )

    beside_three(scenario)


def test_an_empty_number_is_the_brokers_default() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        found = await changed(app, "create-topic", name="t")
        assert arguments(found) == ["kafka-topics.sh", "--create", "--topic", "t"]
        await members.until(lambda: members.leader("t", 3) >= 0)
        assert len(members.isr("t")) == 2

    beside_three(scenario, num_partitions="4", default_replication_factor="2")


def test_configs_of_one_broker_and_of_all_are_set_and_deleted() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        def threads() -> list[int]:
            servers = [members.members[it].server for it in members.alive]
            return [it.topology.planes[0].seats for it in servers if it is not None]

        await changed(app, "broker-configs", set="num.io.threads=2")
        await members.until(lambda: threads() == [2, 2, 2])
        found = await changed(app, "broker-configs", id="1", set="num.io.threads=4")
        words = ["--alter", "--entity-type", "brokers", "--entity-name", "1"]
        words += ["--add-config", "num.io.threads=4"]
        assert arguments(found) == ["kafka-configs.sh", *words]
        await members.until(lambda: threads() == [2, 4, 2])
        await changed(app, "broker-configs", id="1", delete="num.io.threads")
        await members.until(lambda: threads() == [2, 2, 2])

    beside_three(scenario)


# ---- offsets ------------------------------------------------------------------------


def test_offsets_of_an_empty_group_are_reset() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        await members.create("t", 2)
        for index in range(2):
            await in_sync(members, "t", index)
        place = TopicPartition("t", 0)
        manual = {"enable_auto_commit": False}
        async with members.producer() as producer:
            for value in numbers(0, 10):
                await (await producer.send("t", value, partition=0)).wait()
        async with members.consumer(group_id="g", **manual) as consumer:
            consumer.subscribe(["t"])
            while not await consumer.poll():
                pass
            await consumer.commit({place: OffsetAndMetadata(4)})
            await trio.sleep(3)
            refused = await get(
                app, "/clusters/0/change/reset-offsets?preview=1&name=g&to=latest"
            )
            assert refused.status == 400
            assert "the group has members (it is Stable)" in refused.page.words
        await trio.sleep(3)

        async def committed() -> dict[str, str]:
            rows = (await get(app, "/clusters/0/group?name=g")).page.rows
            return {row[1]: row[2] for row in rows if row[0] == "t"}

        expected = [
            ({"to": "shift by", "value": "3"}, "7", ["--shift-by", "3"]),
            ({"to": "shift by", "value": "-99"}, "0", ["--shift-by", "-99"]),
            ({"to": "offset", "value": "9"}, "9", ["--to-offset", "9"]),
            ({"to": "offset", "value": "11"}, "10", ["--to-offset", "11"]),
            ({"to": "earliest"}, "0", ["--to-earliest"]),
            ({"to": "latest"}, "10", ["--to-latest"]),
            (
                {"to": "time", "value": "2001-01-01T00:00:00.5"},
                "0",
                ["--to-datetime", "2001-01-01T00:00:00.500"],
            ),
        ]
        for values, offset, option in expected:
            found = await changed(app, "reset-offsets", name="g", **values)
            assert arguments(found) == [
                *("kafka-consumer-groups.sh", "--reset-offsets", "--group", "g"),
                *("--all-topics", *option, "--execute"),
            ]
            assert await committed() == {"0": offset}
        values = {"topic": "t", "partition": "1", "to": "earliest"}
        found = await changed(app, "reset-offsets", name="g", **values)
        assert arguments(found)[4:6] == ["--topic", "t:1"]
        assert await committed() == {"0": "0", "1": "0"}

    beside_three(scenario)


# ---- leaders and replicas -----------------------------------------------------------


def test_a_preferred_leader_is_elected() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        await members.create("t")
        await in_sync(members)
        preferred = members.leader("t")
        for values, option in (
            ({"topic": "t", "partition": "0"}, ["--topic", "t", "--partition", "0"]),
            ({"topic": "t"}, ["--path-to-json-file", "election.json"]),
            ({}, ["--all-topic-partitions"]),
        ):
            await members.stop(preferred)
            await members.start(preferred)
            await in_sync(members)
            assert members.leader("t") != preferred
            await members.until(lambda: members.controller is not None)
            found = await changed(app, "elect-leaders", kind="preferred", **values)
            assert arguments(found) == [
                *("kafka-leader-election.sh", "--election-type", "preferred"),
                *option,
            ]
            await members.until(lambda: members.leader("t") == preferred)

    beside_three(scenario, auto_leader_rebalance_enable="false")


def test_an_unclean_leader_is_elected() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        placed = [{"partition_index": 0, "broker_ids": [0, 1]}]
        await members.create("t", -1, replication_factor=-1, assignments=placed)
        await in_sync_of(members, {0, 1})
        await members.kill(1)
        await members.until(lambda: members.isr("t") == {0})
        async with members.producer(acks="1") as producer:
            await send(producer, [b"lost"])
        await members.kill(0)
        await members.start(1)
        await members.until(members.know_each_other)
        assert members.leader("t") == -1
        await members.until(lambda: members.controller is not None)
        await trio.sleep(3)
        await changed(app, "elect-leaders", kind="unclean", topic="t", partition="0")
        await members.until(lambda: members.leader("t") == 1)

    beside_three(scenario)


async def in_sync_of(members: Members, brokers: set[int]) -> None:
    await members.until(lambda: members.isr("t") == brokers)


def test_replicas_are_spread_under_a_throttle_that_is_ended() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        placed = [{"partition_index": it, "broker_ids": [0, 1]} for it in range(3)]
        await members.create("t", -1, replication_factor=-1, assignments=placed)
        await in_sync_of(members, {0, 1})
        async with members.producer(batch_size=2_000) as producer:
            await send(producer, [b"x" * 1000] * 100)
        found = await changed(app, "reassign", by="number", throttle="1000")
        words = ["--execute", "--reassignment-json-file", "reassignment.json"]
        assert arguments(found) == [
            "kafka-reassign-partitions.sh",
            *(*words, "--throttle", "1000"),
        ]
        plan = json.loads(found.page.blocks[1])
        assert len(plan["partitions"]) >= 2
        replicas = {it["partition"]: it["replicas"] for it in plan["partitions"]}
        moved = [it for it, nodes in replicas.items() if 2 in nodes]
        assert len(moved) == 2

        shown = (await get(app, "/clusters/0/reassignments")).page
        rows = [row for row in shown.rows if row[0] == "t"]
        assert {int(row[1]) for row in rows} == {*moved}
        assert {row[3] for row in rows} == {"2"}
        assert all(row[5] != "100 %" for row in rows)
        assert ["2", RATE, "1000"] in shown.rows
        again = await get(app, preview("reassign", {}))
        assert again.status == 400
        assert "another reassignment is in progress" in again.page.words

        await changed(app, "end-throttles", topics="t")
        shown = (await get(app, "/clusters/0/reassignments")).page
        assert not any(RATE in row for row in shown.rows)
        await members.until(lambda: all(2 in members.isr("t", it) for it in moved))
        for number, nodes in replicas.items():
            assert members.isr("t", number) == {*nodes}
        loads = [len(members.broker(it).logs.logs) for it in range(3)]
        (
            await members.until(
                lambda: (
                    [len(members.broker(it).logs.logs) for it in range(3)] == [2, 2, 2]
                )
            ),
            loads,
        )
        await trio.sleep(3)
        even = await get(app, "/clusters/0/change/reassign?preview=1")
        assert "no replica has to move: the load is even already" in even.page.words

    beside_three(scenario, replica_fetch_response_max_bytes="5000")


def test_a_reassignment_is_cancelled() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        placed = [{"partition_index": it, "broker_ids": [0, 1]} for it in range(3)]
        await members.create("t", -1, replication_factor=-1, assignments=placed)
        await in_sync_of(members, {0, 1})
        async with members.producer(batch_size=2_000) as producer:
            await send(producer, [b"x" * 1000] * 300)
        await changed(app, "reassign", by="bytes", throttle="1")
        shown = (await get(app, "/clusters/0/reassignments")).page
        moving = [int(row[1]) for row in shown.rows if row[0] == "t"]
        assert moving
        found = await changed(app, "cancel-reassignment")
        words = ["--cancel", "--preserve-throttles", "--reassignment-json-file"]
        assert arguments(found) == [
            "kafka-reassign-partitions.sh",
            *(*words, "reassignment.json"),
        ]
        await members.until(lambda: not members.broker(2).logs.logs)
        for number in moving:
            assert members.isr("t", number) == {0, 1}
        none = await get(app, "/clusters/0/change/cancel-reassignment?preview=1")
        assert "no reassignment is in progress" in none.page.words

    beside_three(scenario, replica_fetch_response_max_bytes="5000")


# ---- schedulers ---------------------------------------------------------------------


def has_weights(broker: Broker, weights: dict[str, int]) -> Callable[[], bool]:
    return lambda: broker.config[DOORKEEPER_WFQ_WEIGHTS] == weights


def test_weights_and_ageing_are_altered_of_one_broker_and_of_all() -> None:
    async def scenario(members: Members, app: ASGIApp) -> None:
        found = await changed(
            app, "alter-scheduler", weights="control:9,produce:2", ageing="70"
        )
        words = ["--alter", "--entity-type", "brokers", "--entity-default"]
        both = "doorkeeper.wfq.weights=[control:9,produce:2]"
        both += ",doorkeeper.priority.ageing.ms=70"
        assert arguments(found) == ["kafka-configs.sh", *words, "--add-config", both]
        weights = ("control:16,replication:4", "control:9,produce:2", "at once")
        assert [row for row in found.page.rows if len(row) == 5][1:] == [
            row
            for number in "012"
            for row in (
                [number, "doorkeeper.wfq.weights", *weights],
                [number, "doorkeeper.priority.ageing.ms", "1000", "70", "next start"],
            )
        ]
        given = {"control": 9, "produce": 2}
        for number in range(3):
            broker = members.broker(number)
            await members.until(has_weights(broker, given))
            assert broker.config[DOORKEEPER_PRIORITY_AGEING_MS] == 70
        await changed(app, "alter-scheduler", id="1", weights="fetch:3")
        await members.until(has_weights(members.broker(1), {"fetch": 3}))
        assert members.broker(0).config[DOORKEEPER_WFQ_WEIGHTS] == given
        rows = (await get(app, "/clusters/0/requests?id=1")).page.rows
        assert ["doorkeeper.wfq.weights", "fetch:3", "broker, dynamic"] in rows

    beside_three(scenario, doorkeeper_scheduler="wfq")


async def test_a_scheduler_of_kafka_is_not_altered(autojump_clock: object) -> None:
    async with console_of_fake(allow_changes=True) as (app, kafka):
        kafka.own_configs = {}
        found = await get(app, preview("alter-scheduler", {"ageing": "1"}))
    assert found.status == 400
    assert "no broker of Doorkeeper among them" in " ".join(found.page.words)


# ---- confirmations, refusals and the log --------------------------------------------

# Valid values for the preview of each change of the fake broker.
FILLED = {
    "create-topic": {"name": "new", "partitions": "1", "configs": "a=b"},
    "add-partitions": {"name": "topic", "count": "3"},
    "topic-configs": {"name": "topic", "set": "a=b", "delete": "c"},
    "delete-topic": {"name": "topic"},
    "broker-configs": {"id": "0", "set": "a=b"},
    "reset-offsets": {"name": "group", "topic": "topic", "to": "earliest"},
    "elect-leaders": {"kind": "preferred", "topic": "topic"},
    "elect-all-leaders": {"kind": "unclean"},
    "reassign": {
        "plan": '{"partitions":[{"topic":"topic","partition":0,"replicas":[0]}]}'
    },
    "cancel-reassignment": {},
    "end-throttles": {"topics": "topic"},
    "alter-scheduler": {"id": "0", "weights": "control:8,fetch:2", "ageing": "50"},
}


def preview(action: str, values: dict[str, str]) -> str:
    return f"/clusters/0/change/{action}?{urlencode({'preview': '1', **values})}"


def test_every_change_is_tested() -> None:
    assert FILLED.keys() == ACTIONS.keys()


def without_members(name: str) -> str:
    """Return a field's text for a broker whose one group is empty."""
    return "Empty" if name == "state" else name


@pytest.mark.parametrize("action", ACTIONS)
async def test_nothing_changes_before_it_is_confirmed(
    action: str, autojump_clock: object
) -> None:
    opened = console_of_fake(without_members, allow_changes=True)
    async with opened as (app, kafka):
        kafka.is_moving = action != "reassign"
        assert (await get(app, f"/clusters/0/change/{action}")).status == 200
        shown = await get(app, preview(action, FILLED[action]))
        assert (shown.status, shown.page.forms[-1]["token"] != "") == (200, True)
        assert shown.page.blocks[0].startswith("kafka-")
        assert not CHANGING.keys() & {*kafka.calls}
        found = await carry_out(app, action, **FILLED[action])
        assert CHANGING.keys() & {*kafka.calls}
        assert found.status in (200, 400)


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_console_that_is_read_only_answers_403(
    action: str, autojump_clock: object
) -> None:
    target = f"/clusters/0/change/{action}"
    async with console_of_fake(without_members) as (app, kafka):
        for found in (
            await get(app, target),
            await get(app, preview(action, FILLED[action])),
            await post(app, target, FILLED[action]),
        ):
            assert found.status == 403
            assert "read-only" in " ".join(found.page.words)
        assert not CHANGING.keys() & {*kafka.calls}
        for page in PAGES:
            shown = await get(app, f"/clusters/0/{page}?id=0&name=topic")
            assert not any("/change/" in it for it in shown.page.links)
            assert "set-cookie" not in shown.headers


async def test_a_form_needs_the_token_and_cookie_of_its_session(
    autojump_clock: object,
) -> None:
    target = "/clusters/0/change/delete-topic"
    async with console_of_fake(allow_changes=True) as (app, kafka):
        first, second = [
            await get(app, preview("delete-topic", {"name": "topic"})) for _ in range(2)
        ]
        form = first.page.forms[-1]
        cookie, other = (
            it.headers["set-cookie"].partition(";")[0] for it in (first, second)
        )
        assert cookie != other
        words = first.headers["set-cookie"].lower().split("; ")
        assert {"httponly", "samesite=strict", "path=/"} <= {*words}
        tokenless = {key: it for key, it in form.items() if key != "token"}
        own = "http://localhost:8080"
        for sent, sent_cookie, origin in (
            (tokenless, cookie, own),
            ({**form, "token": ""}, cookie, own),
            ({**form, "token": "é"}, cookie, own),
            ({**form, "token": form["token"][:-1] + "x"}, cookie, own),
            (form, None, own),
            (form, other, own),
            (form, "doorkeeper-console-8080=", own),
            (form, cookie, None),
            (form, cookie, "null"),
            (form, cookie, "http://evil.example"),
            (form, cookie, "http://localhost:8081"),
            (form, cookie, "http://localhost"),
            (form, cookie, "http://localhost:8080.evil.example"),
        ):
            found = await post(app, target, sent, cookie=sent_cookie, origin=origin)
            assert found.status == 403
        found = await post(app, target, form, cookie=cookie, kind="text/plain")
        assert found.status == 413
        long = {**form, "name": "x" * (3 << 20)}
        assert (await post(app, target, long, cookie=cookie)).status == 413
        many = {**form, **{f"{it}": "" for it in range(99)}}
        assert (await post(app, target, many, cookie=cookie)).status == 413
        assert not CHANGING.keys() & {*kafka.calls}
        # The browser keeps its session, and the token is unchanged.
        again = await get(app, target, cookie=cookie)
        assert again.headers["set-cookie"].partition(";")[0] == cookie
        await post(app, target, form, cookie=cookie)
        assert CHANGING.keys() & {*kafka.calls}


async def test_a_change_is_logged_before_and_after(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with console_of_fake(allow_changes=True) as (app, _):
        await get(app, preview("delete-topic", {"name": "topic"}))
        assert not caplog.records
        await carry_out(app, "delete-topic", name="topic")
    begun, ended = (it.__dict__["fields"] for it in caplog.records)
    command = "kafka-topics.sh --bootstrap-server fake:1 --delete --topic topic"
    assert begun == {"client": "127.0.0.1", "cluster": "fake:1", "commands": command}
    outcome = "failed: POLICY_VIOLATION: message"
    assert ended["outcome"].lower() == outcome.lower()


async def test_a_change_that_is_not_answered_is_logged_as_unknown(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    opened = console_of_fake(allow_changes=True, request_timeout_ms=60_000)
    async with opened as (app, kafka):
        shown = await get(app, preview("create-topic", {"name": "new"}))
        kafka.is_silent = True
        cookie = shown.headers["set-cookie"].partition(";")[0]
        target = "/clusters/0/change/create-topic"
        found = await post(app, target, shown.page.forms[-1], cookie=cookie)
    assert found.status == 400
    assert "has not answered" in " ".join(found.page.words)
    assert "unknown" in caplog.records[-1].__dict__["fields"]["outcome"]


@pytest.mark.parametrize(
    ("action", "values", "why"),
    [
        ("create-topic", {}, "Topic is empty"),
        ("create-topic", {"name": "t", "partitions": "x"}, "is not a number"),
        ("create-topic", {"name": "t", "partitions": "0"}, "is not above zero"),
        ("create-topic", {"name": "t", "replicas": "9" * 30}, "is not a number"),
        ("create-topic", {"name": "t", "configs": "a"}, "not key=value"),
        ("create-topic", {"name": "t", "configs": "=a"}, "not key=value"),
        ("add-partitions", {"name": "absent", "count": "3"}, "no such topic"),
        ("add-partitions", {"name": "topic", "count": "2"}, "not above the present 2"),
        ("delete-topic", {"name": "absent"}, "no such topic"),
        ("topic-configs", {"name": "topic"}, "nothing to set"),
        ("topic-configs", {"name": "topic", "set": "a=1", "delete": "a"}, "cannot be"),
        ("topic-configs", {"name": "topic", "set": "a b=1"}, "not the name"),
        ("topic-configs", {"name": "topic", "set": "a=[1]"}, "no brackets"),
        ("broker-configs", {"id": "7", "set": "a=1"}, "is no broker"),
        ("broker-configs", {"set": "ssl.key.password=1"}, "is a secret"),
        ("broker-configs", {"set": "a.sasl.jaas.config=1"}, "is a secret"),
        ("broker-configs", {"set": "ssl.keystore.key=1"}, "is a secret"),
        ("reset-offsets", {"name": "absent"}, "no such group"),
        ("reset-offsets", {"name": "group", "to": "x"}, "not one of earliest"),
        ("reset-offsets", {"name": "group", "to": "offset"}, "is not a number"),
        ("reset-offsets", {"name": "group", "to": "time"}, "is empty"),
        ("reset-offsets", {"name": "group", "to": "time", "value": "x"}, "is not like"),
        ("reset-offsets", {"name": "group", "partition": "0"}, "needs a topic"),
        (
            "reset-offsets",
            {"name": "group", "topic": "topic", "partition": "9"},
            "not one of the topic",
        ),
        (
            "reset-offsets",
            {"name": "group", "topic": "topic", "to": "shift by", "value": "1"},
            "cannot be shifted",
        ),
        ("elect-leaders", {"topic": "topic", "partition": "9"}, "not one of the topic"),
        ("elect-leaders", {"topic": "absent"}, "no such topic"),
        ("reassign", {}, "the load is even already"),
        ("reassign", {"topics": "absent"}, "no topic absent"),
        ("reassign", {"brokers": "7"}, "7 is no broker"),
        ("reassign", {"throttle": "-1"}, "is not above zero"),
        ("reassign", {"plan": "x"}, "not one of the console"),
        ("reassign", {"plan": "[" * 9_999}, "not one of the console"),
        ("reassign", {"plan": '{"partitions":[{}]}'}, "not one of the console"),
        (
            "reassign",
            {"plan": '{"partitions":[{"topic":"topic","partition":0,"replicas":[7]}]}'},
            "not there",
        ),
        (
            "reassign",
            {"plan": '{"partitions":[{"topic":"topic","partition":0,"replicas":[]}]}'},
            "distinct replicas",
        ),
        ("cancel-reassignment", {"topic": "absent"}, "no reassignment is in progress"),
        ("end-throttles", {"topics": "absent"}, "no topic absent"),
        ("alter-scheduler", {"id": "0"}, "nothing to set"),
        ("alter-scheduler", {"id": "7", "ageing": "1"}, "is no broker that is alive"),
        ("alter-scheduler", {"weights": "a:0"}, "doorkeeper.wfq.weights: found 'a:0'"),
        ("alter-scheduler", {"weights": "<b>"}, "doorkeeper.wfq.weights: found '<b>'"),
        ("alter-scheduler", {"ageing": "-1"}, "found '-1', expected a whole number"),
    ],
)
async def test_impossible_values_are_refused_in_a_sentence(
    action: str, values: dict[str, str], why: str, autojump_clock: object
) -> None:
    opened = console_of_fake(without_members, allow_changes=True)
    async with opened as (app, kafka):
        kafka.is_moving = action != "reassign"
        found = await get(app, preview(action, values))
        assert found.status == 400
        assert why in " ".join(found.page.words)
        assert not CHANGING.keys() & {*kafka.calls}
        # The form keeps the values, and has no confirmation button.
        (form,) = found.page.forms
        for key, value in values.items():
            if key in form and key not in ("kind", "to", "by"):
                assert form[key] == value


async def test_apis_that_are_not_served_are_reported(autojump_clock: object) -> None:
    opened = console_of_fake(without_members, allow_changes=True)
    async with opened as (app, kafka):
        for key in (
            *CHANGING,
            *(it for it in kafka.versions if it.name.startswith("LIST_PART")),
        ):
            del kafka.versions[key]
        for action in ("create-topic", "delete-topic", "elect-leaders"):
            found = await carry_out(app, action, **FILLED[action])
            assert found.status == 400
            assert "not served by this broker" in " ".join(found.page.words)
        found = await get(app, "/clusters/0/reassignments")
        assert "not served by this broker" in " ".join(found.page.words)


# ---- hostile text -------------------------------------------------------------------


def hostile_values(action: str, added: str) -> dict[str, str]:
    """Return values for a form, with ``added`` at the end of each text."""
    values = {
        key: value
        if key in ("partitions", "count", "id", "kind", "to", "weights", "ageing")
        else value + added
        for key, value in FILLED[action].items()
    }
    values.pop("delete", None)
    if "plan" in values:
        row = {"topic": f"topic{added}", "partition": 0, "replicas": [0]}
        values["plan"] = json.dumps({"partitions": [row]})
    return values


async def shapes_of_a_change(action: str, tail: str, *, is_shown: bool) -> list[object]:
    """Return the shapes of preview, outcome and refusal for texts with a tail."""

    def text(name: str) -> str:
        return "Empty" if name == "state" else name + tail

    values = hostile_values(action, tail)
    async with console_of_fake(text, allow_changes=True) as (app, kafka):
        kafka.is_moving = action != "reassign"
        shown = await get(app, preview(action, values))
        assert shown.status == 200, shown.page.words
        cookie = shown.headers["set-cookie"].partition(";")[0]
        target = f"/clusters/0/change/{action}"
        ended = await post(app, target, shown.page.forms[-1], cookie=cookie)
        assert ended.status in (200, 400)
        refused = await get(app, preview(action, dict.fromkeys(values, text("x"))))
    # A shell must parse the words unchanged.
    for block in shown.page.blocks:
        if block.startswith("kafka-") and is_shown:
            words = shlex.split(block)
            assert words[1:3] == ["--bootstrap-server", "fake:1"]
            if "--topic" in words:
                topic = words[words.index("--topic") + 1].replace("\\.", ".")
                assert topic.startswith((text("topic"), text("new")))
    return [it.page.shape for it in (shown, ended, refused)]


@pytest.mark.parametrize("action", ACTIONS)
async def test_hostile_text_in_forms_previews_and_outcomes_changes_no_element(
    action: str, autojump_clock: object
) -> None:
    expected = {
        tail: await shapes_of_a_change(action, tail, is_shown=False)
        for tail in {*map(harmless, HOSTILE)}
    }
    for kind, hostile in HOSTILE.items():
        tail = hostile.replace("\n", " ").replace("[", "(").replace("]", ")")
        is_shown = kind not in ("order", "control", "long")
        found = await shapes_of_a_change(action, tail, is_shown=is_shown)
        assert found == expected[harmless(kind)], kind


async def test_a_link_to_a_change_carries_the_name(autojump_clock: object) -> None:
    def text(name: str) -> str:
        return name + HOSTILE["path"]

    async with console_of_fake(text, allow_changes=True) as (app, _):
        shown = await get(
            app, f"/clusters/0/topic?{urlencode({'name': text('topic')})}"
        )
        (link,) = (it for it in shown.page.links if "/delete-topic" in it)
        assert parse_qs(urlsplit(link).query)["name"] == [text("topic")]
        assert (await get(app, link)).page.forms[0]["name"] == text("topic")
