"""The controller's four requests, which Kafka 4 removed and kio therefore lacks.

Each module declares request and response once, as a dataclass over all versions with
``from_wire`` and ``to_wire(version)``; the codec uses kio-style entities of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.protocol.schemas.controlled_shutdown_schema import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.message import ControllerMessage
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


def _by_key(
    *messages: type[ControllerMessage],
) -> Mapping[int, type[ControllerMessage]]:
    return MappingProxyType({each.api_key: each for each in messages})


REQUESTS: Final = _by_key(
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    ControlledShutdownRequest,
)
RESPONSES: Final = _by_key(
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
    ControlledShutdownResponse,
)
