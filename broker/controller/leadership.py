"""The leader of a partition, its epochs, and its in-sync replicas.

The value of ``/brokers/topics/T/partitions/P/state`` (Kafka's
``LeaderIsrAndControllerEpoch``), with the version of that znode, which is the partition
epoch of requests. Each new leader or ISR decided by the controller has a new leader
epoch; an ISR proposed by the leader keeps the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# The version of a znode that does not exist yet.
NOT_WRITTEN: Final = -1
# Leader recovery states (KIP-704): the leader was in the ISR, or it was not.
RECOVERED: Final = 0
RECOVERING: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The state of one partition; ``leader`` may be ``NO_LEADER``.

    In a state to be written, ``version`` is the znode's version after the write, which
    is conditional on the preceding version; 0 creates the znode.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int
    recovery_state: int = RECOVERED

    def next(
        self,
        controller_epoch: int,
        *,
        leader: int,
        isr: tuple[int, ...],
        recovery_state: int | None = None,
    ) -> Leadership:
        """Return the next state by a controller's decision, in a new leader epoch."""
        return Leadership(
            leader=leader,
            leader_epoch=self.leader_epoch + 1,
            isr=isr,
            controller_epoch=controller_epoch,
            version=self.version + 1,
            recovery_state=(
                self.recovery_state if recovery_state is None else recovery_state
            ),
        )

    def with_isr(
        self, controller_epoch: int, isr: tuple[int, ...], recovery_state: int
    ) -> Leadership:
        """Return the next state by a leader's proposal, in the same leader epoch."""
        return replace(
            self,
            isr=isr,
            controller_epoch=controller_epoch,
            version=self.version + 1,
            recovery_state=recovery_state,
        )


def first_leadership(isr: tuple[int, ...], controller_epoch: int) -> Leadership:
    """Return the first state of a partition: the first of the ISR leads."""
    return Leadership(
        leader=isr[0],
        leader_epoch=0,
        isr=isr,
        controller_epoch=controller_epoch,
        version=NOT_WRITTEN + 1,
    )
