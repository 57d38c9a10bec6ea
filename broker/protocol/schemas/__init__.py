"""The controller's four requests, which Kafka 4 removed and kio therefore lacks.

Each module holds the versioned schema (`REQUEST`, `RESPONSE`), from which the codec
gets kio-style entities, and one typed shape for all versions with ``from_wire`` and
``to_wire(version)``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas import (
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from broker.protocol.schemas.message import Message

REQUESTS: Final[Mapping[int, Message]] = MappingProxyType(
    {
        ApiKey.LEADER_AND_ISR: leader_and_isr.REQUEST,
        ApiKey.STOP_REPLICA: stop_replica.REQUEST,
        ApiKey.UPDATE_METADATA: update_metadata.REQUEST,
        ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.REQUEST,
    }
)
RESPONSES: Final[Mapping[int, Message]] = MappingProxyType(
    {
        ApiKey.LEADER_AND_ISR: leader_and_isr.RESPONSE,
        ApiKey.STOP_REPLICA: stop_replica.RESPONSE,
        ApiKey.UPDATE_METADATA: update_metadata.RESPONSE,
        ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.RESPONSE,
    }
)
