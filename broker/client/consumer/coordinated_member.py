"""A member of a group: its identity, and its requests to the coordinator.

The search for the coordinator is the same in both group protocols. The identity is a
generation in the classic protocol, and the member's epoch in KIP-848's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.consumer_config import GROUP_ID, GROUP_INSTANCE_ID
from broker.client.network_client import Address, NetworkClient
from broker.client.retriable_errors import COORDINATOR_MOVED, check
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from broker.protocol.messages.message import AnyRequest, AnyResponse

_GROUP_KEY: Final = 0
NO_GENERATION: Final = -1


class Generation(NamedTuple):
    """A member's identity in one generation of its group (Kafka: ``Generation``)."""

    number: int
    member_id: str


class _Failing(AnyResponse, Protocol):
    """A response with a top-level error code."""

    @property
    def error_code(self) -> ErrorCode:
        """The error."""


R = TypeVar("R", bound=AnyResponse)
E = TypeVar("E", bound=_Failing)


class CoordinatedMember(ABC):
    """One member of one group.

    ``last`` is its last identity: a member that the group has removed keeps it, so that
    a transaction with its offsets is refused. With ``has_epochs``, ``generation`` is
    the epoch of this member.
    """

    has_epochs = False

    def __init__(
        self, config: ClientConfig, client: NetworkClient, metadata: Metadata
    ) -> None:
        group = config[GROUP_ID]
        assert group is not None
        self.group = group
        self.instance_id = config[GROUP_INSTANCE_ID]
        self.member_id = ""
        self.generation = NO_GENERATION
        self.last = self.current
        self._client = client
        self._metadata = metadata
        self._coordinator: Address | None = None

    @property
    def current(self) -> Generation:
        """The member's current identity."""
        return Generation(self.generation, self.member_id)

    async def call(self, request: AnyRequest[E], timeout_s: float = 0.0) -> E:
        """Send a request as `send`, and raise the response's error, too."""
        answer = await self.send(request, timeout_s)
        self.note_error(answer.error_code)
        check(answer.error_code, request.api_key.name)
        return answer

    async def send(self, request: AnyRequest[R], timeout_s: float = 0.0) -> R:
        """Send a request to the coordinator, which is looked up if necessary.

        Raises `KafkaError`.
        """
        coordinator = await self.coordinator()
        try:
            return await self._client.call(coordinator, request, timeout_s)
        except KafkaError as error:
            self.note_error(error.code)
            raise

    def note_error(self, code: ErrorCode) -> None:
        """Look up the coordinator again after an error that it has moved."""
        if code in COORDINATOR_MOVED:
            self._coordinator = None

    async def coordinator(self) -> Address:
        """Return the coordinator; raises `KafkaError`."""
        if self._coordinator is None:
            request = FindCoordinatorRequest(key=self.group, key_type=_GROUP_KEY)
            address = self._metadata.any_address()
            found = await self._client.call(address, request)
            check(found.error_code, found.error_message)
            self._coordinator = Address(found.host, found.port, "group")
        return self._coordinator

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group, if this is a member; raises `KafkaError`."""

    def reset(self, *, keep_id: bool) -> None:
        """Drop the generation, and the member id unless ``keep_id``."""
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = ""
