"""ISR changes: leaders propose, a controller decides, producers wait."""

from __future__ import annotations

import trio

from broker.protocol.errors import ErrorCode
from tests.virtual.brokers import KEY, Brokers, with_brokers


def stop_fetching(brokers: Brokers, follower: int) -> None:
    brokers.applications[follower].broker.replication.fetchers.stop(KEY)


def fetch_again(brokers: Brokers, follower: int) -> None:
    fetchers = brokers.applications[follower].broker.replication.fetchers
    fetchers.follow(brokers.partition(follower))


def test_a_follower_that_lags_leaves_the_isr_and_comes_back_when_it_has_all() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        assert (await brokers.produce(0, b"a"))[0] is ErrorCode.none
        leader = brokers.partition(0)
        stop_fetching(brokers, 1)
        # The produce waits for the follower, until replica.lag.time.max.ms (here 1 s)
        # removes the follower from the ISR.
        began_s = trio.current_time()
        assert (await brokers.produce(0, b"b"))[0] is ErrorCode.none
        assert 1.0 <= trio.current_time() - began_s < 2.1
        assert (leader.isr, brokers.controller.proposed) == ((0,), [(0,)])
        # The broker's registered epoch, not the epoch of the commands.
        epoch = brokers.applications[0].broker.coordinator.membership.broker_epoch
        assert brokers.controller.epochs == {epoch}
        fetch_again(brokers, 1)
        await brokers.until(lambda: leader.isr == (0, 1))
        assert (await brokers.produce(0, b"c"))[0] is ErrorCode.none
        assert brokers.partition(1).log.log_end_offset == 3
        counts = brokers.applications[0].broker.replication.proposals
        assert (counts.shrinks, counts.expands, counts.refusals) == (1, 1, 0)

    with_brokers(scenario)


def test_records_below_min_insync_are_not_read_until_the_follower_returns() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        assert (await brokers.produce(0, b"a"))[0] is ErrorCode.none
        leader = brokers.partition(0)
        stop_fetching(brokers, 1)
        assert (await brokers.produce(0, b"b", acks=1))[0] is ErrorCode.none
        await brokers.until(lambda: leader.isr == (0,))
        refused, _ = await brokers.produce(0, b"c")
        assert refused is ErrorCode.not_enough_replicas
        assert (await brokers.produce(0, b"d", acks=1))[0] is ErrorCode.none
        assert leader.log.log_end_offset == 3
        assert (await brokers.fetch(0)).high_watermark == 1
        fetch_again(brokers, 1)
        await brokers.until(lambda: leader.high_watermark == 3)
        assert leader.isr == (0, 1)
        assert (await brokers.produce(0, b"e"))[0] is ErrorCode.none

    with_brokers(scenario, min_insync_replicas="2")


def test_an_idle_follower_that_has_everything_stays() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0, 1))
        assert (await brokers.produce(0, b"a"))[0] is ErrorCode.none
        stop_fetching(brokers, 1)
        await trio.sleep(10)
        assert brokers.controller.proposed == []

    with_brokers(scenario)


def test_the_high_watermark_waits_for_who_may_be_in_the_isr_by_now() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.introduce()
        await brokers.elect(0, 1, (0,))
        # The proposal is repeated, and never accepted during this test.
        brokers.controller.refusals = [ErrorCode.unknown_server_error] * 1000
        leader = brokers.partition(0)
        await brokers.until(lambda: leader.proposed_isr == (0, 1))
        stop_fetching(brokers, 1)
        # Since the controller may have accepted it, the replica must have acknowledged
        # records.
        outcome, _ = await brokers.produce(0, b"a", timeout_ms=1000)
        assert outcome is ErrorCode.request_timed_out
        assert (leader.high_watermark, leader.isr) == (0, (0,))

    with_brokers(scenario)


def test_refused_proposals_are_withdrawn_and_made_again() -> None:
    async def scenario(brokers: Brokers) -> None:
        brokers.controller.refusals = [
            ErrorCode.ineligible_replica,
            ErrorCode.operation_not_attempted,
            # Retried unchanged.
            ErrorCode.unknown_server_error,
        ]
        await brokers.introduce()
        await brokers.elect(0, 1, (0,))
        leader = brokers.partition(0)
        await brokers.until(lambda: leader.isr == (0, 1))
        assert brokers.controller.proposed == [(0, 1)] * 4

    with_brokers(scenario)


def test_a_leader_whose_controller_knows_better_waits_for_its_word() -> None:
    async def scenario(brokers: Brokers) -> None:
        brokers.controller.refusals = [ErrorCode.fenced_leader_epoch]
        await brokers.introduce()
        await brokers.elect(0, 1, (0,))
        leader = brokers.partition(0)
        await trio.sleep(5)
        assert (leader.isr, leader.proposed_isr) == ((0,), (0, 1))
        assert brokers.controller.proposed == [(0, 1)]
        await brokers.elect(0, 2, (0,))
        await brokers.until(lambda: leader.isr == (0, 1))

    with_brokers(scenario)


def test_without_a_controller_the_isr_stays_until_one_is_known() -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.elect(0, 1, (0, 1))
        outcome, _ = await brokers.produce(0, b"a", timeout_ms=3000)
        assert outcome is ErrorCode.request_timed_out
        leader = brokers.partition(0)
        assert leader.isr == (0, 1)
        stop_fetching(brokers, 1)
        await brokers.introduce()
        await brokers.until(lambda: leader.isr == (0,))

    with_brokers(scenario)


def test_a_leader_alone_waits_for_followers_that_keep_up_though_it_may_not_join() -> (
    None
):
    """Kafka's ``shouldWaitForReplicaToJoinIsr``."""

    async def scenario(brokers: Brokers) -> None:
        brokers.controller.refusals = [ErrorCode.ineligible_replica] * 10_000
        await brokers.introduce()
        await brokers.elect(0, 1, (0,))
        leader, follower = brokers.partition(0), brokers.partition(1)
        await brokers.until(lambda: brokers.controller.proposed != [])
        for end in range(1, 6):
            assert (await brokers.produce(0, b"a"))[0] is ErrorCode.none
            assert follower.log.log_end_offset == end
        await brokers.until(lambda: leader.maximal_isr == (0,))
        stop_fetching(brokers, 1)
        # Earlier requests have been refused by then.
        await trio.sleep(0.2)
        assert leader.maximal_isr == (0,)
        outcome, _ = await brokers.produce(0, b"b", timeout_ms=500)
        assert outcome is ErrorCode.request_timed_out
        assert (leader.high_watermark, leader.isr) == (5, (0,))
        await trio.sleep(1)
        assert (await brokers.produce(0, b"c"))[0] is ErrorCode.none
        assert leader.high_watermark == 7

    with_brokers(scenario)
