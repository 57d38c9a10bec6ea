"""Producer ids, reserved from the coordinator in blocks."""

from __future__ import annotations

from collections.abc import Iterator

from broker.coordination.coordinator_roles import AdminManager
from broker.coordination.turns import Turns


class ProducerIds:
    """Kafka's ``ProducerIdManager``."""

    def __init__(self, admin: AdminManager) -> None:
        self._admin = admin
        self._block: Iterator[int] = iter(())
        # Otherwise each caller during a reservation would reserve a block.
        self._turns = Turns()

    async def next(self) -> int:
        """Return an id that was never allocated before; raise `KafkaError`."""
        async with self._turns:
            producer_id = next(self._block, None)
            while producer_id is None:
                self._block = iter(await self._admin.producer_id_block())
                producer_id = next(self._block, None)
            return producer_id
