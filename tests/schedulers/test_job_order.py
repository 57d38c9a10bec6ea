"""`JobOrder`, which the ranking policies share, against a sorted list."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers import Job
from schedulers.orders import job_order
from schedulers.orders.job_order import JobOrder

# Few distinct keys cause ties at bucket boundaries; None is a pop.
MOVES = st.lists(st.one_of(st.none(), st.integers(-3, 12)), max_size=300)


@pytest.mark.parametrize("load", [1, 2, 5])
@given(moves=MOVES)
def test_the_job_order_agrees_with_a_sorted_list(load, moves):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_order, "_LOAD", load)
        order, naive = JobOrder(), []
        for number, key in enumerate(moves):
            if key is None:
                picked = order.pop()
                expected = naive.pop(0)[1] if naive else None
                assert (None if picked is None else picked.number) == expected
            else:
                order.push(key, Job(number=number))
                naive = sorted([*naive, (key, number)])
            order.check()
            assert order.least() == (naive[0][0] if naive else None)
            assert len(order) == len(naive)
        assert sorted((key, job.number) for key, job in order) == naive


@given(st.lists(st.integers(0, 3), max_size=60))
def test_jobs_may_come_back_with_numbers_from_before(keys):
    """A preempted job returns to its place by number among equal keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_order, "_LOAD", 2)
        order = JobOrder()
        for number, key in enumerate(keys):
            order.push(key, Job(number=-number))
            order.check()
        found = [order.pop().number for _ in keys]
    assert found == [n for _, n in sorted((key, -n) for n, key in enumerate(keys))]


def test_a_push_never_has_more_than_a_bucket_to_sort():
    """Equal keys with descending numbers are all inserted at the front."""
    order = JobOrder()
    for number in range(5_000):
        order.push(7, Job(number=-number))
        order.check()
        assert max(map(len, (order._near, *order._buckets))) <= 2 * job_order._LOAD
    assert [order.pop().number for _ in range(5_000)] == list(range(-4_999, 1))


@pytest.mark.parametrize("seed", range(3))
def test_a_long_queue_comes_out_in_order(seed):
    rng = random.Random(seed)
    order = JobOrder()
    naive = [(rng.randrange(10_000), number) for number in range(20_000)]
    for key, number in naive:
        order.push(key, Job(number=number))
    order.check()
    naive.sort()
    assert [order.pop().number for _ in naive] == [number for _, number in naive]
    assert not len(order)
