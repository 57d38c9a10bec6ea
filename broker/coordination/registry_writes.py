"""Decisions of the embedded coordinator, each durable before the next is made."""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.blocking import Blocking, carried_out
from broker.coordination.cluster_state import Change, ClusterState
from broker.coordination.embedded_registry import Registry
from broker.coordination.turns import Turns
from broker.log.steps import Steps
from broker.protocol.errors import ErrorCode, KafkaError


class RegistryWrites:
    """Writes to the registry, one after the other."""

    def __init__(self, registry: Registry, blocking: Blocking) -> None:
        self._registry = registry
        self._blocking = blocking
        self._turns = Turns()

    @property
    def state(self) -> ClusterState:
        """The state as stored."""
        return self._registry.state

    async def write(self, decide: Callable[[], Change | None]) -> bool:
        """Make a decision and store it durably; False if there is nothing to do.

        When this returns, the state contains the change, and no later decision.
        """
        async with self._turns:
            change = decide()
            if change is None:
                return False
            try:
                await carried_out(self._registry.changing(change), self._blocking)
            except OSError as error:
                raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
        return True

    async def retract(self, decide: Callable[[], Change | None]) -> bool:
        """Store a decision that undoes an earlier one; never fail."""
        async with self._turns:
            change = decide()
            if change is None:
                return False
            await carried_out(self._registry.retracting(change), self._blocking)
        return True

    @property
    def needs_compaction(self) -> bool:
        """Return whether the changes outgrow the state; False during a change."""
        return self._registry.is_long and not self._turns.is_taken

    def compaction(self) -> Steps[None]:
        """Rewrite the registry; raise OSError."""
        if self._turns.is_taken:
            return
        self._turns.take()
        try:
            yield from self._registry.compaction()
        finally:
            self._turns.give_back()
