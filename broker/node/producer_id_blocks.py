"""Producer ids, taken from the coordinator a block at a time."""

from __future__ import annotations

from collections.abc import Iterator

from broker.coordination.coordinator_roles import AdminManager
from broker.coordination.turns import Turns


class ProducerIds:
    """Kafka's ``ProducerIdManager``."""

    def __init__(self, admin: AdminManager) -> None:
        self._admin = admin
        self._block: Iterator[int] = iter(())
        # Otherwise all callers during a reservation would reserve a block each.
        self._turns = Turns()

    async def next(self) -> int:
        """Return an id that no producer was ever given; raise `KafkaError`."""
        async with self._turns:
            producer_id = next(self._block, None)
            while producer_id is None:
                self._block = iter(await self._admin.producer_id_block())
                producer_id = next(self._block, None)
            return producer_id
