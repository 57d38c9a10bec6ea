"""The movable heap, against a sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.orders.heap import Heap

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9), st.integers(-5, 5)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
    ),
    max_size=200,
)


@given(MOVES)
def test_the_heap_agrees_with_a_sorted_dictionary(moves):
    heap, naive = Heap(), {}
    for verb, item, key in moves:
        if verb == "put":
            heap.put(item, key, item)
            naive[item] = key
        elif verb == "remove" and item in naive:
            heap.remove(item)
            del naive[item]
        elif verb == "pop" and naive:
            first = min(naive, key=lambda it: (naive[it], it))
            assert heap.pop() == first
            del naive[first]
        assert heap.first() == min(naive, key=lambda it: (naive[it], it), default=None)
        assert len(heap) == len(naive)
        assert set(heap) == set(naive)
        for it, value in naive.items():
            assert it in heap
            assert heap.key(it) == value


def test_stale_entries_do_not_pile_up():
    heap = Heap()
    for key in range(10_000):
        heap.put("only", key, 0)
    assert len(heap._entries) < 200
    assert heap.pop() == "only"


def test_an_empty_heap_has_no_first_and_nothing_to_pop():
    heap = Heap()
    heap.put("gone", 1, 0)
    heap.remove("gone")
    assert heap.first() is None
    with pytest.raises(IndexError):
        heap.pop()
    with pytest.raises(KeyError):
        heap.remove("gone")
