"""The buffer pool compared with a queue and a number: waits, timeouts, cancellation."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.client.producer.buffer_pool import BufferPool
from broker.protocol.errors import ErrorCode, KafkaError
from simulation.virtual_time.determinism import run_virtual

TOTAL = 10

steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, TOTAL)),
        st.tuples(st.just("give"), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
    ),
    max_size=40,
)


class Model:
    """Lists of the pool's holders and waiters."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.waiting: list[tuple[int, int]] = []

    def settle(self) -> None:
        while self.waiting:
            number, size = self.waiting[0]
            if sum(self.held.values()) + size > TOTAL:
                return
            self.held[number] = size
            self.waiting.pop(0)


@given(steps)
def test_memory_goes_to_whoever_has_asked_first(steps: list[tuple[str, int]]) -> None:
    async def main(_: object) -> None:
        pool, model = BufferPool(TOTAL), Model()
        granted: dict[int, int] = {}
        scopes: dict[int, trio.CancelScope] = {}

        async def ask(number: int, size: int) -> None:
            with scopes.setdefault(number, trio.CancelScope()):
                await pool.allocate(size, float("inf"))
                granted[number] = size

        async with trio.open_nursery() as nursery:
            for number, (what, argument) in enumerate(steps):
                if what == "ask":
                    nursery.start_soon(ask, number, argument)
                    model.waiting.append((number, argument))
                elif what == "give" and granted:
                    holder = sorted(granted)[argument % len(granted)]
                    pool.deallocate(granted.pop(holder))
                    del model.held[holder]
                elif what == "cancel" and model.waiting:
                    gone = model.waiting.pop(argument % len(model.waiting))
                    scopes[gone[0]].cancel()
                model.settle()
                await trio.testing.wait_all_tasks_blocked()
                assert granted == model.held
                assert pool.available == TOTAL - sum(granted.values())
                assert pool.queued == len(model.waiting)
            nursery.cancel_scope.cancel()
        for size in granted.values():
            pool.deallocate(size)
        assert (pool.available, pool.queued) == (TOTAL, 0)

    run_virtual(main, seed=1)


async def test_a_waiter_cancelled_at_the_grant_takes_nothing() -> None:
    pool = BufferPool(TOTAL)
    await pool.allocate(TOTAL, float("inf"))
    granted = []

    async def ask() -> None:
        await pool.allocate(4, float("inf"))
        granted.append(4)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        pool.deallocate(TOTAL)
        nursery.cancel_scope.cancel()
    assert (pool.available, pool.queued) == (TOTAL - sum(granted), 0)


async def test_time_is_up_for_one_and_the_next_gets_what_it_was_in_the_way_of(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pool = BufferPool(TOTAL)
    await pool.allocate(6, float("inf"))
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def too_much() -> None:
            with pytest.raises(KafkaError) as failed:
                await pool.allocate(8, began_s + 5)
            assert failed.value.code is ErrorCode.request_timed_out

        nursery.start_soon(too_much)
        await trio.testing.wait_all_tasks_blocked()
        await pool.allocate(3, float("inf"))
        assert trio.current_time() == began_s + 5
    assert pool.available == 1
