"""A failing duty affects one object and one round: others continue, and it is retried.

The tests inject the faults, since no real one is known. No fault may end the process,
block later work, or be retried without a pause.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from broker.node.background import RETRY_NS, Duty, duty_metrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import MS, NONE, World
from tests.broker.apis.requests import fetch_fields

SECOND_MS = RETRY_NS // MS


class Broken(Exception):
    """The injected fault."""


def test_a_duty_rests_after_a_failure_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[int] = []

    def work(now_ns: int) -> None:
        calls.append(now_ns)
        if len(calls) < 3:
            raise Broken

    duty = Duty("chore", lambda: 5, work)
    for now_ns in (4, 5, 6, 5 + RETRY_NS - 1, 5 + RETRY_NS, 5 + 2 * RETRY_NS):
        duty.run(now_ns)
    assert calls == [5, 5 + RETRY_NS, 5 + 2 * RETRY_NS]
    assert duty.failures == 2
    assert duty.due_ns() == 5 + 2 * RETRY_NS
    assert caplog.text.count("a background duty failed and is tried again") == 2


def test_a_duty_that_waits_for_nothing_is_not_run() -> None:
    duty = Duty("idle", lambda: None, lambda _: pytest.fail("ran"))
    duty.run(1)
    assert duty.due_ns() is None


def test_a_delayed_request_whose_expiry_fails_does_not_hold_up_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.create("t", 2)
    waiting = [
        world.start(
            ApiKey.FETCH, 12, **fetch_fields({("t", n): 0}, max_wait_ms=100 + n)
        )
        for n in range(2)
    ]
    first = True

    def on_expiration(self: Any) -> None:
        nonlocal first
        if first:
            first = False
            raise Broken

    monkeypatch.setattr(
        "broker.cluster.delayed.delayed_fetch.DelayedFetch.on_expiration", on_expiration
    )
    world.pass_ms(150)
    assert waiting[0].done
    world.pass_ms(SECOND_MS)
    assert waiting[1].done
    world.check()
    assert failures(world)["Fetch purgatory"] == 1


def test_a_group_whose_timer_fails_is_tried_again_and_others_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World({"group.initial.rebalance.delay.ms": "0"})
    world.send(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
    world.pass_ms(0)
    groups = ("g1", "g2")
    for group in groups:
        join(world, group)
    membership = world.broker.groups._membership
    due = type(membership).due
    fails = 1

    def fail_once(self: Any, group: Any, key: Any, now: Any) -> Any:
        nonlocal fails
        if fails:
            fails -= 1
            raise Broken
        return due(self, group, key, now)

    monkeypatch.setattr(type(membership), "due", fail_once)
    world.pass_ms(60_000)
    world.pass_ms(SECOND_MS)
    world.pass_ms(SECOND_MS)
    described = world.send(ApiKey.DESCRIBE_GROUPS, 5, groups=list(groups))
    assert [group.members for group in described.groups] == [(), ()]
    assert failures(world)["groups"] == 1
    world.check()


def test_background_failures_are_a_metric() -> None:
    world = World()
    assert set(failures(world)) == {
        "Produce purgatory",
        "Fetch purgatory",
        "DeleteRecords purgatory",
        "AddPartitionsToTxn purgatory",
        "group flushes",
        "groups",
        "group loading",
        "group deletions",
        "transactions",
        "transaction loading",
        "transaction markers",
        "isr expiration",
        "upkeep",
    }
    assert set(failures(world).values()) == {0}


# ---- helpers ----


def failures(world: World) -> dict[str, float]:
    return {
        each.labels["duty"]: each.value
        for each in duty_metrics((*world.broker.duties, world.broker.upkeep_duty))
        if each.name + each.suffix == "doorkeeper_background_failures_total"
    }


def join(world: World, group: str) -> None:
    """Join a member that never sends a heartbeat."""
    fields = {
        "group_id": group,
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    call = world.start(ApiKey.JOIN_GROUP, 3, member_id="", **fields)
    world.pass_ms(0)
    assert call.done
    assert call.answer.error_code in (NONE, ErrorCode.member_id_required)
