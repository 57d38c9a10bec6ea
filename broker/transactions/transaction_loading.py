"""Loading of partitions of ``__transaction_state``, in bounded steps.

The last record of each id is its state. If an outcome was decided and some markers may
be missing, all markers are written again after the load: a marker without a transaction
to end changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import getLogger
from typing import Final

from broker.observation.logs import fields
from broker.shards.effects import Effects
from broker.shards.record_fields import UnreadableRecord
from broker.shards.shard import Shard, Steps
from broker.shards.shard_loading import Loading
from broker.shards.shards import Shards
from broker.transactions.transaction import Transaction
from broker.transactions.transaction_records import read_name, read_value
from broker.transactions.transaction_state import PREPARED

logger = getLogger(__name__)

_RECORDS_PER_STEP: Final = 32
_BYTES_PER_STEP: Final = 16 << 10


class TransactionLoading(Loading[Transaction]):
    """Loading and unloading of the partitions of ``__transaction_state``."""

    def __init__(
        self,
        shards: Shards[Transaction],
        *,
        on_loaded: Callable[[Shard[Transaction]], None],
        on_work: Callable[[], None],
    ) -> None:
        super().__init__("transactions", shards, on_loaded=on_loaded, on_work=on_work)
        # By partition, transactions whose markers a loaded shard must write.
        self._prepared: dict[int, dict[str, Transaction]] = {}

    def pop_prepared(self, partition: int) -> Iterable[Transaction]:
        """Remove and return the transactions that a load has found decided."""
        return self._prepared.pop(partition, {}).values()

    def _end(self, one: Transaction) -> Iterable[Effects]:
        # Waiting requests complete with their writes, which need no further step here.
        return ()

    def _read(self, shard: Shard[Transaction]) -> Steps:
        number = size = 0
        self._prepared[shard.partition] = {}
        for records in self._shards.log.replay(shard.partition):
            for key, value in records:
                try:
                    self._take(shard, key, value)
                except UnreadableRecord as fault:
                    # One unreadable record must not fail the complete load.
                    logger.error(
                        "a record of __transaction_state is passed over",
                        extra=fields(partition=shard.partition, fault=fault),
                    )
                number += 1
                size += len(key) + len(value or b"")
                if number >= _RECORDS_PER_STEP or size >= _BYTES_PER_STEP:
                    yield
                    number = size = 0
            number += 1
        yield

    def _take(self, shard: Shard[Transaction], key: bytes, value: bytes | None) -> None:
        name = read_name(key)
        if name is None:
            return
        if not shard.owns(name):
            raise UnreadableRecord(f"id {name!r} is another partition's")
        found = None if value is None else Transaction(name, read_value(value))
        prepared = self._prepared[shard.partition]
        prepared.pop(name, None)
        if found is None:
            shard.by_id.pop(name, None)
            return
        shard.by_id[name] = found
        if found.state in PREPARED:
            prepared[name] = found
