"""Connection quotas and the memory pool, with examples computed by hand."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.network.connection_quotas import (
    AddressThrottled,
    ConnectionLimits,
    ConnectionQuotas,
    TooManyConnections,
)
from broker.network.memory_pool import MemoryPool
from broker.quotas.address_rates import AddressRates

S = 1_000_000_000


def now_ns():
    """Return Trio's time; tests of rates advance it by sleeping."""
    return round(trio.current_time() * S)


def quotas_of(limits):
    return ConnectionQuotas(limits, now_ns)


def test_an_address_is_counted_over_all_listeners():
    quotas = ConnectionQuotas(ConnectionLimits(per_address=2), lambda: 0)
    quotas.open("A", "10.0.0.1")
    quotas.open("B", "10.0.0.1")
    with pytest.raises(TooManyConnections):
        quotas.open("A", "10.0.0.1")
    quotas.open("A", "10.0.0.2")
    quotas.close("B", "10.0.0.1")
    quotas.open("A", "10.0.0.1")
    assert quotas.total == 3


def test_an_override_counts_instead_of_the_common_bound():
    limits = ConnectionLimits(per_address=1, per_address_overrides={"10.0.0.1": 0})
    quotas = ConnectionQuotas(limits, lambda: 0)
    with pytest.raises(TooManyConnections):
        quotas.open("A", "10.0.0.1")
    quotas.open("A", "10.0.0.2")


async def test_a_new_configuration_lets_those_in_who_wait(nursery):
    quotas = quotas_of(ConnectionLimits(total=1))
    quotas.open("A", "10.0.0.1")
    passed = trio.Event()

    async def wait():
        await quotas.wait_for_slot("A")
        passed.set()

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    assert not passed.is_set()
    quotas.configure(ConnectionLimits(total=2))
    await passed.wait()


async def test_the_protected_listener_waits_for_its_own_bound_only():
    limits = ConnectionLimits(total=1, protected="INTERNAL")
    quotas = quotas_of(limits)
    quotas.open("PUBLIC", "10.0.0.1")
    await quotas.wait_for_slot("INTERNAL")
    assert not quotas.exceeded("PUBLIC")
    quotas.open("INTERNAL", "10.0.0.2")
    assert quotas.exceeded("PUBLIC")
    assert not quotas.exceeded("INTERNAL")
    quotas.close("PUBLIC", "10.0.0.1")
    assert not quotas.exceeded("PUBLIC")


async def waits_s(quotas, listener, count):
    """Open connections as fast as the quota allows; return the waits, in seconds."""
    waits = []
    for _ in range(count):
        since = trio.current_time()
        await quotas.wait_for_slot(listener)
        quotas.open(listener, "10.0.0.1")
        waits.append(round(trio.current_time() - since, 6))
    return waits


async def test_connections_that_come_too_fast_wait(autojump_clock):
    quotas = quotas_of(ConnectionLimits(rate=2))
    # The rate is averaged over ten seconds and the current window: 20 pass at once.
    # The wait is 21 / 2 - 10 s at 0 s and 22 / 2 - 10.5 s at 0.5 s. At 1 s a second
    # window has begun; the wait of 23 / 2 - 10 s is limited to one second.
    assert await waits_s(quotas, "A", 23) == [0] * 20 + [0.5, 0.5, 1.0]
    await trio.sleep(20)
    assert await waits_s(quotas, "A", 20) == [0] * 20


async def test_a_listener_may_have_a_rate_of_its_own(autojump_clock):
    limits = ConnectionLimits(rate_per_listener={"A": 1}, protected="B", rate=3)
    quotas = quotas_of(limits)
    assert await waits_s(quotas, "A", 11) == [0] * 10 + [1.0]
    # The protected listener neither waits for the common rate nor adds to it.
    assert await waits_s(quotas, "B", 40) == [0] * 40
    assert await waits_s(quotas, "C", 19) == [0] * 19
    quotas.configure(ConnectionLimits())
    assert await waits_s(quotas, "C", 40) == [0] * 40


async def test_blocked_time_of_an_acceptor_is_counted(nursery, autojump_clock):
    quotas = quotas_of(ConnectionLimits(total=1))
    await quotas.wait_for_slot("A")
    quotas.open("A", "10.0.0.1")
    assert quotas.blocked_ns("A", now_ns()) == 0
    nursery.start_soon(quotas.wait_for_slot, "A")
    await trio.sleep(2)
    assert quotas.blocked_ns("A", now_ns()) == 2 * S
    quotas.close("A", "10.0.0.1")
    await trio.sleep(3)
    assert quotas.blocked_ns("A", now_ns()) == 2 * S
    assert quotas.blocked_ns("B", now_ns()) == 0


async def test_an_address_that_opens_them_too_fast_waits_and_counts_nowhere(
    autojump_clock,
):
    rates = AddressRates()
    rates.put("ips/<default>", {"connection_creation_rate": "2"})
    quotas = ConnectionQuotas(ConnectionLimits(), now_ns, address_rates=rates)
    delays = []
    for _ in range(22):
        await quotas.wait_for_slot("A")
        try:
            quotas.open("A", "10.0.0.1")
        except AddressThrottled as throttled:
            delays.append(throttled.delay_ms)
    # 20 pass at once; each further connection would wait for 21 / 2 - 10 s.
    assert delays == [500, 500]
    assert quotas.total == 20
    assert quotas.rate_per_s("A", now_ns()) == quotas.rate_per_s(None, now_ns()) == 2
    assert quotas.throttle_ms("A", now_ns()) == (0, 500)
    # Another address has its own rate.
    await quotas.wait_for_slot("A")
    quotas.open("A", "10.0.0.2")
    await trio.sleep(0.5)
    await quotas.wait_for_slot("A")
    quotas.open("A", "10.0.0.1")


def test_the_pool_is_exceeded_by_the_last_request_only():
    pool = MemoryPool(100)
    heard = []
    pool.on_available(lambda: heard.append(pool.available_bytes))
    pool.take(99)
    assert not pool.exhausted
    pool.take(1)
    assert pool.exhausted
    pool.release(1)
    assert heard == [1]
    heard.clear()
    pool.take(500)
    assert pool.exhausted
    assert pool.used_bytes == 599
    pool.release(99)
    assert pool.exhausted
    assert heard == []
    pool.release(500)
    assert heard == [100]


def test_more_is_never_given_back_than_was_taken():
    pool = MemoryPool(100)
    pool.take(10)
    with pytest.raises(AssertionError):
        pool.release(11)
