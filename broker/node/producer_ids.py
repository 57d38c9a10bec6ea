"""Producer ids, taken from the coordinator a block at a time."""

from __future__ import annotations

from collections.abc import Iterator

from broker.coordination.coordinator import Coordinator


class ProducerIds:
    """Kafka's ``ProducerIdManager``."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._block: Iterator[int] = iter(())

    async def next(self) -> int:
        """Return an id that no producer was ever given; raise `KafkaError`."""
        producer_id = next(self._block, None)
        while producer_id is None:
            self._block = iter(await self._coordinator.producer_id_block())
            producer_id = next(self._block, None)
        return producer_id
