"""Who may enter a full queue."""

import pytest

from planes import Admission
from schedulers import Job

CONTROL = Job(number=0, request_class="control")
DATA = Job(number=1, request_class="data")
FAVOURED = frozenset({"control"})


@pytest.mark.parametrize(
    ("rule", "reserved", "data_until", "control_until"),
    [
        ("block", 0, 10, 10),
        ("reserve", 3, 7, 10),
        ("reserve", 0, 10, 10),
        ("exempt", 0, 10, 10_000),
    ],
)
def test_each_rule_admits_a_class_up_to_its_bound(
    rule, reserved, data_until, control_until
):
    admission = Admission(capacity=10, rule=rule, favoured=FAVOURED, reserved=reserved)
    for queued in (0, 6, 7, 9, 10, 11, 9_999):
        assert admission.admits(DATA, queued) == (queued < data_until)
        assert admission.admits(CONTROL, queued) == (queued < control_until)


@pytest.mark.parametrize("reserved", [-1, 10])
def test_a_reservation_leaves_room_for_the_rest(reserved):
    with pytest.raises(AssertionError):
        Admission(capacity=10, rule="reserve", reserved=reserved)


def test_an_unknown_rule_is_an_error_of_ours():
    with pytest.raises(AssertionError):
        Admission(capacity=10, rule="maybe")
