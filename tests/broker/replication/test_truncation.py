"""Truncation offsets of followers, compared with the longest common prefix."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.wire.hot import EpochEnd
from broker.replication.truncation import truncation_offset


@dataclass
class History:
    """A log as the leader epoch of each offset; epochs never decrease."""

    epochs: list[int]

    @property
    def log_end_offset(self) -> int:
        return len(self.epochs)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        known = [each for each in self.epochs if each <= epoch]
        newest = self.epochs[-1] if self.epochs else -1
        if epoch > newest or epoch < 0:
            return EpochEnd(-1, -1)
        return EpochEnd(known[-1] if known else epoch, len(known))


def grown(history: list[int], epoch: int, records: int) -> list[int]:
    return [*history, *[epoch] * records]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[History, History]:
    """Draw two diverging logs: an epoch adds records to both if equal, or to one."""
    logs: tuple[list[int], list[int]] = ([], [])
    for epoch in range(draw(st.integers(1, 8))):
        records = draw(st.integers(0, 3))
        who = draw(st.sampled_from(("both", 0, 1)))
        if who == "both" and logs[0] == logs[1]:
            logs = (grown(logs[0], epoch, records), grown(logs[1], epoch, records))
        else:
            # A lagging replica has a prefix of the other one's records.
            one = 0 if who == "both" else who
            log = grown(logs[one], epoch, records)
            logs = (log, logs[1]) if one == 0 else (logs[0], log)
    return History(logs[0]), History(logs[1])


def common(one: History, other: History) -> int:
    ends = [
        at
        for at, (a, b) in enumerate(zip(one.epochs, other.epochs, strict=False))
        if a != b
    ]
    return ends[0] if ends else min(one.log_end_offset, other.log_end_offset)


@given(pairs())
def test_asking_again_and_again_ends_where_the_logs_part(
    pair: tuple[History, History],
) -> None:
    """An epoch has one leader, so equal epochs at an offset are equal records."""
    leader, follower = pair
    for _ in range(20):
        if not follower.epochs:
            break
        # A leader's answer to a Fetch (KIP-595): its epoch and its end offset.
        latest = follower.epochs[-1]
        epoch, end = leader.epoch_end_offset(latest)
        if end == -1:
            # The leader's newest epoch is older, or its log is empty.
            newest = leader.epochs[-1] if leader.epochs else -1
            epoch, end = newest, leader.log_end_offset
        if epoch == latest and end >= follower.log_end_offset:
            break
        cut = truncation_offset(follower, epoch, end)
        assert cut < follower.log_end_offset, "no progress"
        assert cut >= common(leader, follower), "cut more than what differs"
        del follower.epochs[cut:]
    assert follower.log_end_offset == common(leader, follower)
    assert follower.epochs == leader.epochs[: follower.log_end_offset]
