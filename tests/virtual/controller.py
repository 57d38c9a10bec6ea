"""A controller that accepts all proposals for ISRs except those that a test refuses."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from broker.protocol.errors import ErrorCode
from simulation.control.controller_listener import serve_controller
from simulation.control.elections import LeaderAndIsr
from simulation.virtual_time.memory_network import MemoryNetwork

CONTROLLER, PORT = 9, 9099


class FakeController:
    """Accepts ISR proposals after answering with each of ``refusals``."""

    def __init__(self) -> None:
        self.proposed: list[tuple[int, ...]] = []
        self.epochs: set[int] = set()
        self.refusals: list[ErrorCode] = []
        self.partition_epoch = 1000
        # The newest announced leader epoch.
        self.leader_epoch = 0

    async def run(self, network: MemoryNetwork) -> None:
        """Answer brokers until cancelled."""
        await serve_controller(network.listen("127.0.0.1", PORT), self._decide)

    def _decide(
        self, broker: int, broker_epoch: int, topic_id: UUID, proposed: Any
    ) -> tuple[ErrorCode, LeaderAndIsr]:
        self.epochs.add(broker_epoch)
        isr = tuple(proposed.new_isr)
        code = self.refusals.pop(0) if self.refusals else ErrorCode.none
        if proposed.leader_epoch < self.leader_epoch:
            code = ErrorCode.fenced_leader_epoch
        self.proposed.append(isr)
        self.partition_epoch += 1
        return code, LeaderAndIsr(
            replicas=(),
            leader=0,
            leader_epoch=proposed.leader_epoch,
            isr=isr,
            partition_epoch=self.partition_epoch,
        )
