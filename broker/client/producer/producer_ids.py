"""Producer ids: requested once, and again for partitions with exhausted epochs.

Kafka's ``InitProducerId`` request of the idempotent producer. Every request returns a
new id with epoch 0. Its failure (CLUSTER_AUTHORIZATION_FAILED, missing API) fails all
records.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.network_client import NetworkClient
from broker.client.producer.producer_batch import Identity
from broker.client.producer.sequences import Sequences
from broker.client.retriable_errors import is_retriable
from broker.client.signals import Signal
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.init_producer_id import InitProducerIdRequest

_NO_TRANSACTION = timedelta(milliseconds=2**31 - 1)


class ProducerIds:
    """The producer's id, and the task that requests it."""

    def __init__(
        self,
        config: ClientConfig,
        client: NetworkClient,
        metadata: Metadata,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._backoff = retry_backoff(config, rng)
        self._current: Identity | None = None
        self._without: list[Sequences] = []
        self._wanted = Signal()
        self.on_change: Callable[[], None] = _do_nothing
        self.on_failure: Callable[[KafkaError], None] = _raise_error

    def give(self, sequences: Sequences) -> None:
        """Assign an id to a partition's batches, at once or after a request.

        A partition that has exhausted the epochs of an id receives another id.
        """
        current = self._current
        if current is not None and current.producer_id != sequences.used_up:
            sequences.identify(current.producer_id, current.epoch)
        elif sequences not in self._without:
            self._without.append(sequences)
            self._wanted.notify()

    async def run(self) -> None:
        """Request an id when a partition needs one, until cancelled."""
        failures = 0
        while True:
            await self._wanted.wait()
            while self._without:
                try:
                    self._current = await self._request_identity()
                except KafkaError as error:
                    failures += 1
                    if not is_retriable(error.code):
                        self._without.clear()
                        self.on_failure(error)
                        break
                    await trio.sleep(self._backoff.after(failures))
                    continue
                failures = 0
                self._assign(self._current)

    def _assign(self, identity: Identity) -> None:
        without, self._without = self._without, []
        for sequences in without:
            sequences.identify(identity.producer_id, identity.epoch)
        self.on_change()

    async def _request_identity(self) -> Identity:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout=_NO_TRANSACTION
        )
        address = self._metadata.any_address()
        answer = await self._client.call(address, request)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code, "no producer id")
        return Identity(answer.producer_id, answer.producer_epoch, 0)


def _do_nothing() -> None:
    """Do nothing: no task waits."""


def _raise_error(error: KafkaError) -> None:
    raise error
