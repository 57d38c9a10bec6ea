"""The closed forms against golden values, special cases and one another.

Golden set A has two classes at one server, with rates .05 and .1875 and exponential
services of means 1 and 4. Set B has lognormal data with squared coefficient of
variation 2. Set C has eight servers of rate .25 and classes of rates .085 and 1.615.
The values were computed by other software and confirmed by simulations of 500,000 jobs.
"""

import math
import random

import pytest

from experiments.theory.mg1 import MG1, Unstable, exponential_segments
from experiments.theory.mmc import MMc, erlang_c
from experiments.theory.shares import share_by_weight, share_of_priority
from experiments.theory.sizes import Sizes

approx = pytest.approx

A = MG1.exponential((0.05, 0.1875), (1, 4))
B = MG1(rates=(0.05, 0.1875), means=(1, 4), squares=(2, 80))
C = MMc(servers=8, rates=(0.085, 1.615), mean=4)

GOLDEN = 5e-5


def test_set_a():
    assert A.fifo() == approx(15.25)
    assert A.nonpreemptive() == approx((3.2105, 16.0526), rel=GOLDEN)
    assert A.preemptive() == approx((1.0526, 20.2632), rel=GOLDEN)
    assert A.ageing((2, 1)) == approx((9.3846, 15.6410), rel=GOLDEN)
    assert A.ageing((10, 1)) == approx((4.4712, 15.9686), rel=GOLDEN)
    assert A.conserved() == approx(12.2)


def test_set_b():
    assert B.fifo() == approx(37.75)
    assert B.nonpreemptive() == approx((7.9474, 39.7368), rel=GOLDEN)
    assert B.preemptive() == approx((1.0526, 43.9474), rel=GOLDEN)
    assert B.ageing((2, 1)) == approx((23.2308, 38.7179), rel=GOLDEN)
    assert B.ageing((10, 1)) == approx((11.0681, 39.5288), rel=GOLDEN)
    assert B.conserved() == approx(30.2)


def test_set_c():
    assert C.fifo() == approx(1.9086, rel=GOLDEN)
    assert C.nonpreemptive() == approx((0.29899, 1.99328), rel=GOLDEN)
    assert C.preemptive() == approx((4.0, 6.0090), rel=GOLDEN)
    assert C.split((1, 7)) == approx((2.0606, 5.7781), rel=GOLDEN)


@pytest.mark.parametrize(
    ("segment", "wait"), [(0.25, 0.1508), (1, 0.4331), (4, 1.3810)]
)
def test_set_a_with_preemption_points(segment, wait):
    """The golden values come from sampled segments, hence the tolerance of 1 %."""
    squares = [exponential_segments(4, segment)]
    assert A.checkpointed(squares) == approx(wait, rel=0.01)


@pytest.mark.parametrize("segment", [0.25, 1, 4, 40])
def test_squares_of_segments_against_a_sample(segment):
    rng = random.Random(1)
    total, jobs = 0.0, 100_000
    for _ in range(jobs):
        whole, last = divmod(rng.expovariate(1 / 4), segment)
        total += whole * segment**2 + last**2
    assert exponential_segments(4, segment) == approx(total / jobs, rel=0.02)


def test_preemption_points_lie_between_preemptive_and_nonpreemptive():
    assert A.checkpointed([exponential_segments(4, 1e-9)]) == approx(
        A.preemptive()[0] - 1, rel=1e-6
    )
    assert A.checkpointed([exponential_segments(4, 400)]) == approx(
        A.nonpreemptive()[0]
    )


@pytest.mark.parametrize(
    ("share", "nonpreemptive", "preemptive"),
    [
        (0, 3.211, 0.0526),
        (0.01, 3.236, 0.0849),
        (0.05, 3.342, 0.219),
        (0.1, 3.486, 0.40),
        (0.25, 4.0, 1.05),
    ],
)
def test_misclassified_data_hurts_preemption_most(share, nonpreemptive, preemptive):
    mixed = A.misclassified(share)
    assert mixed.load == approx(A.load)
    assert mixed.nonpreemptive()[0] == approx(nonpreemptive, rel=1e-3)
    excess = mixed.preemptive()[0] - mixed.means[0]
    assert excess == approx(preemptive, rel=2e-3)


@pytest.mark.parametrize("slopes", [(1, 1), (2, 1), (10, 1)])
def test_every_nonpreemptive_order_conserves_the_weighted_wait(slopes):
    for system in (A, B):
        for waits in (system.nonpreemptive(), system.ageing(slopes)):
            total = sum(r * w for r, w in zip(system.loads, waits, strict=True))
            assert total == approx(system.conserved())


def test_ageing_lies_between_fifo_and_strict_priority():
    assert A.ageing((1, 1)) == approx((A.fifo(), A.fifo()))
    assert A.ageing((1e9, 1)) == approx(A.nonpreemptive(), rel=1e-6)
    three = MG1.exponential((0.1, 0.2, 0.1), (1, 2, 3))
    assert three.ageing((1, 1, 1)) == approx((three.fifo(),) * 3)
    assert three.ageing((1e18, 1e9, 1)) == approx(three.nonpreemptive(), rel=1e-6)


def test_preemptive_exponential_conserves_the_weighted_sojourn():
    total = sum(r * t for r, t in zip(A.loads, A.preemptive(), strict=True))
    assert total == approx(sum(A.residuals) / (1 - A.load))


# ---- by size -----------------------------------------------------------------------


M_M_1 = Sizes.exponential(0.8, 1)


@pytest.mark.parametrize(
    ("policy", "mean"),
    [
        (M_M_1.srpt, 2.353),
        (M_M_1.psjf, 2.659),
        (M_M_1.sjf, 2.882),
        (M_M_1.las, 5.0),
        (M_M_1.processor_sharing, 5.0),
    ],
)
def test_mean_sojourn_of_m_m_1_by_size(policy, mean):
    assert M_M_1.mean_over_sizes(policy) == approx(mean, rel=2e-4)


def test_size_based_orders_agree_where_sizes_do_not_matter():
    assert M_M_1.fifo() == approx(5)
    tiny = 1e-6
    assert M_M_1.srpt(tiny) == approx(M_M_1.psjf(tiny), rel=1e-3)
    assert M_M_1.processor_sharing(3) / 3 == approx(5)


# ---- several servers ---------------------------------------------------------------


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (2, 1.2), (8, 6.8), (50, 45)])
def test_erlang_c_against_its_sum(servers, load):
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    others = sum(load**k / math.factorial(k) for k in range(servers))
    assert erlang_c(servers, load) == approx(last / (others + last))


def test_one_server_is_m_g_1():
    one = MMc(servers=1, rates=(0.05, 0.15), mean=4)
    same = MG1.exponential((0.05, 0.15), (4, 4))
    assert one.fifo() == approx(same.fifo())
    assert one.nonpreemptive() == approx(same.nonpreemptive())
    assert one.preemptive() == approx(same.preemptive())


@pytest.mark.parametrize("system", [lambda: erlang_c(4, 4), lambda: M(1.0)])
def test_an_overloaded_system_is_refused(system):
    with pytest.raises(Unstable):
        system()


def M(load):
    return MG1.exponential((load,), (1,))


# ---- overload and bounds -------------------------------------------------------------


def test_shares_of_an_overloaded_server():
    rates, means = (0.5, 1.0, 0.25), (1, 1, 4)
    assert share_of_priority(rates, means) == approx([0.5, 0.5, 0])


@pytest.mark.parametrize(
    ("demands", "weights", "shares"),
    [
        ((1, 1, 1), (1, 1, 1), (1 / 3, 1 / 3, 1 / 3)),
        ((0.1, 1, 1), (1, 1, 1), (0.1, 0.45, 0.45)),
        ((1, 1), (3, 1), (0.75, 0.25)),
        ((0.1, 0.2), (1, 1), (0.1, 0.2)),
        ((9, 0.3, 9), (1, 4, 2), (0.7 / 3, 0.3, 1.4 / 3)),
    ],
)
def test_weighted_shares_fill_like_water(demands, weights, shares):
    assert share_by_weight(demands, weights) == approx(shares)
