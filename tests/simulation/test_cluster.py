"""Simulated clusters: restarted brokers, links, disks, sessions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import trio

from broker.client.producer.producer import open_producer
from broker.protocol.topic_partition import TopicPartition
from simulation.cluster import WallClock
from simulation.swarm.nemesis import Nemesis
from simulation.swarm.scenarios import Fault, draw
from simulation.virtual_time.network_faults import Link, between
from tests.simulation.clusters import KEY, World, in_world

CONTROLLER = "controller"


def producer(world: World, **settings: Any) -> Any:
    context = world.context()
    return open_producer(
        context.bootstrap,
        connect=context.host.connect,
        rng=random.Random(4),
        now_ms=context.now_ms,
        **settings,
    )


async def send(client: Any, value: bytes) -> int:
    receipt = await client.send("t", value)
    return int((await receipt.wait()).offset)


def host(number: int) -> str:
    return f"broker-{number}"


def test_an_idle_producer_finds_the_next_leader() -> None:
    """No request was in flight, so no failure reported the leader's end."""

    async def scenario(world: World) -> float:
        async with producer(world) as client:
            assert await send(client, b"a") == 0
            await world.cluster.kill(world.leader())
            await world.until(lambda: world.leader() != 0)
            await trio.sleep(1)
            began_s = trio.current_time()
            assert await send(client, b"b") == 1
            return trio.current_time() - began_s

    assert in_world(scenario) < 2


def test_a_killed_leader_comes_back_as_a_follower_with_all_that_it_had() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as client:
            assert await send(client, b"a") == 0
            await world.cluster.kill(0)
            await world.until(lambda: world.leader() == 1)
            assert await send(client, b"b") == 1
            await world.cluster.start(0)
            await world.until(lambda: 0 in world.control.elections.states[KEY].isr)
            former = world.replica(0)
            assert not former.is_leader
            assert former.log.log_end_offset == 2
            assert world.cluster.brokers[0].incarnation == 2

    in_world(scenario)


def test_a_broker_that_is_killed_as_it_starts_can_be_started_again() -> None:
    """Seed 5691 of the swarm: a fault began where another one ended."""

    async def scenario(world: World) -> None:
        broker = world.cluster.brokers[0]
        await world.cluster.kill(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.cluster.start, 0)
            while not broker.is_up:
                await trio.lowlevel.checkpoint()
            await world.cluster.kill(0)
        assert not broker.is_up
        await world.cluster.start(0)
        await world.until(lambda: 0 in world.control.elections.states[KEY].isr)
        assert broker.incarnation == 3

    in_world(scenario)


def test_unflushed_bytes_are_lost_with_the_power_and_not_with_the_process() -> None:
    async def ends(world: World, *, power_fails: bool) -> int:
        async with producer(world) as client:
            for number in range(20):
                await send(client, b"%d" % number)
        await world.cluster.kill(0, power_fails=power_fails)
        await world.cluster.start(0)
        log = world.cluster.brokers[0].broker.logs.logs[KEY]
        return int(log.log_end_offset)

    assert in_world(lambda world: ends(world, power_fails=False), count=1) == 20
    assert in_world(lambda world: ends(world, power_fails=True), count=1) < 20
    flushed = {"log_flush_interval_messages": "1"}
    assert (
        in_world(lambda world: ends(world, power_fails=True), count=1, **flushed) == 20
    )


def test_a_broker_that_the_controller_does_not_reach_is_gone_and_registers_anew() -> (
    None
):
    async def scenario(world: World) -> None:
        before = world.control.epoch_of(0)
        links = between([host(0)], [CONTROLLER])
        world.network.silence(links)
        await world.until(lambda: world.leader() == 1)
        # The isolated broker still acts as leader; it cannot change the ISR.
        assert world.replica(0).is_leader
        world.network.restore(links)
        await world.until(lambda: world.control.epoch_of(0) > before)
        await world.until(lambda: not world.replica(0).is_leader)

    in_world(scenario)


def test_a_silent_link_keeps_what_is_sent_until_it_is_heard() -> None:
    async def scenario(world: World) -> None:
        async with producer(world, request_timeout_ms=60_000) as client:
            assert await send(client, b"a") == 0
            link = [Link(host(0), "client")]
            world.network.silence(link)
            receipt = await client.send("t", b"b")
            await world.until(lambda: world.replica(0).high_watermark == 2)
            with trio.move_on_after(5):
                await receipt.wait()
                raise AssertionError("the answer came over a silent link")
            world.network.restore(link)
            assert (await receipt.wait()).offset == 1

    in_world(scenario)


def test_cut_connections_break_on_both_sides_and_are_made_again() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as client:
            assert await send(client, b"a") == 0
            assert world.network.cut_between([host(0)], ["client"]) > 0
            assert await send(client, b"b") == 1

    in_world(scenario)


def test_a_device_that_fails_stops_its_broker_and_a_full_one_does_not() -> None:
    async def scenario(world: World) -> None:
        first, second, _ = world.cluster.brokers
        async with producer(world) as client:
            first.disk.fill_up()
            receipt = await client.send("t", b"a")
            with trio.move_on_after(3):
                await receipt.wait()
                raise AssertionError("there was no room for it")
            first.disk.make_room()
            assert (await receipt.wait()).offset == 0
            assert first.is_up
            second.disk.fail()
            assert await send(client, b"b") == 1
            await world.until(lambda: second.has_stopped)
            await world.cluster.start(1)
            await world.until(lambda: 1 in world.control.elections.states[KEY].isr)

    in_world(scenario)


def test_a_replica_that_finds_no_room_is_made_when_there_is_some() -> None:
    async def scenario(world: World) -> None:
        first, key = world.cluster.brokers[0], TopicPartition("late", 0)
        first.disk.fill_up()
        await world.control.create("late", [(0, 1, 2)], {})
        replicas = first.broker.replicas
        await world.until(lambda: key in replicas.without_room)
        await trio.sleep(20)
        # The replica is requested repeatedly, and refused.
        assert key in replicas.without_room
        assert key not in replicas.partitions
        first.disk.make_room()
        await world.until(lambda: key in replicas.partitions, within_s=10)
        assert not replicas.without_room
        assert replicas.partitions[key].is_leader

    in_world(scenario, log_flush_offset_checkpoint_interval_ms="5000")


def test_a_disk_that_stalls_holds_up_who_waits_for_a_flush() -> None:
    async def scenario(world: World) -> None:
        async with producer(world, request_timeout_ms=30_000) as client:
            world.cluster.brokers[0].disk.stall(trio.current_time() + 5)
            began_s = trio.current_time()
            assert await send(client, b"a") == 0
            assert 5 <= trio.current_time() - began_s < 6

    in_world(scenario, count=1, log_flush_interval_messages="1")


@pytest.mark.parametrize("fast_ppm", [0, 500])
def test_wall_clocks_differ_and_drift(fast_ppm: int) -> None:
    async def scenario(world: World) -> None:
        clock = WallClock(ahead_ms=7, drift_ppm=fast_ppm)
        right = WallClock()
        await trio.sleep(100)
        elapsed_ms = world.clock.now_ms()
        drifted_ms = elapsed_ms * fast_ppm // 1_000_000
        assert clock.now_ms(world.clock) == right.now_ms(world.clock) + 7 + drifted_ms

    in_world(scenario, count=1)


def test_wall_clocks_agree_once_faults_are_over_and_none_goes_back() -> None:
    jump = Fault(number=0, at_ms=50, kind="clock", broker=1, lasts_ms=0, chance=3)
    day = replace(draw(0), lasts_ms=100, clock_skew_ms=7, faults=(jump,))

    async def scenario(world: World) -> set[int]:
        brokers = world.cluster.brokers
        brokers[0].wall_clock = WallClock(ahead_ms=7)
        hosts = [each.host.name for each in brokers]
        nemesis = Nemesis(day, world.cluster, world.control, hosts, lambda *_: None)
        await nemesis.run()
        return {each.wall_clock.ahead_ms for each in brokers}

    (ahead_ms,) = in_world(scenario)
    assert ahead_ms >= 7


def test_a_produce_that_waits_for_the_disk_while_its_records_are_cut_off_fails() -> (
    None
):
    """The broker leads again when the flush ends, and another record has the offset."""

    async def scenario(world: World) -> None:
        cluster, network, control = world.cluster, world.network, world.control
        await cluster.kill(0)
        await world.until(lambda: world.leader() == 1)
        await cluster.start(0)
        await world.until(lambda: control.elections.states[KEY].isr == (1, 0))
        fetches = between([host(0)], [host(1)])
        async with producer(world, request_timeout_ms=60_000) as client:
            assert await send(client, b"a") == 0
            network.silence(fetches)
            cluster.brokers[1].disk.stall(trio.current_time() + 8)
            doomed = await client.send("t", b"doomed")
            await world.until(lambda: world.replica(1).log.log_end_offset == 2)
            await control.prefer(KEY)
            await world.until(lambda: not world.replica(1).is_leader)
            network.restore(fetches)
            await world.until(lambda: world.replica(1).log.log_end_offset == 1)
            async with producer(world, acks="1", enable_idempotence=False) as other:
                assert await send(other, b"b") == 1
            await world.until(lambda: world.replica(1).log.log_end_offset == 2)
            await cluster.kill(0)
            await world.until(lambda: world.replica(1).is_leader)
            # The record is refused and retried, after the other producer's record.
            assert (await doomed.wait()).offset == 2

    in_world(
        scenario,
        count=2,
        log_flush_interval_messages="1",
        replica_lag_time_max_ms="60000",
    )
