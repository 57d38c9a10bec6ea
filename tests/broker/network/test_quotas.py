"""Connection quotas and the memory pool, by hand-computed examples."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.network.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    TooManyConnections,
)
from broker.network.memory_pool import MemoryPool


def test_an_address_is_counted_over_all_listeners():
    quotas = ConnectionQuotas(ConnectionLimits(per_address=2))
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
    quotas = ConnectionQuotas(limits)
    with pytest.raises(TooManyConnections):
        quotas.open("A", "10.0.0.1")
    quotas.open("A", "10.0.0.2")


async def test_a_new_configuration_lets_those_in_who_wait(nursery):
    quotas = ConnectionQuotas(ConnectionLimits(total=1))
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
    quotas = ConnectionQuotas(limits)
    quotas.open("PUBLIC", "10.0.0.1")
    await quotas.wait_for_slot("INTERNAL")
    assert not quotas.exceeded("PUBLIC")
    quotas.open("INTERNAL", "10.0.0.2")
    assert quotas.exceeded("PUBLIC")
    assert not quotas.exceeded("INTERNAL")
    quotas.close("PUBLIC", "10.0.0.1")
    assert not quotas.exceeded("PUBLIC")


def test_the_pool_is_exceeded_by_the_last_request_only():
    pool = MemoryPool(100)
    heard = []
    pool.on_available(lambda: heard.append(pool.available_bytes))
    pool.take(99)
    assert not pool.exhausted
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
