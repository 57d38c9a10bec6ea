"""What the scheduler knows of a request: class, priority level, flow, expected cost.

The class is declared by the API (`broker.apis`). For Fetch it follows from the replica
id, too: a Fetch by a follower is replication. Misclassified requests hurt the stronger
policies most: by the closed forms of M/G/1, one per cent of data taken for control
multiplies the wait of control by 1.6 under preemption, by 1.01 without (set A of
``tests/model/test_theory.py``). So nothing is guessed from sizes, names or history.

The expected cost is learned: a moving average of the CPU time that requests of the same
API and of about the same size (a factor of two) have used. Policies that go by size,
and the fair ones, go by this estimate until the true cost is known; what would be late
by it, admission under ``deadline`` turns away.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from broker.config.doorkeeper import DOORKEEPER_CLASS_LEVELS, REQUEST_CLASSES
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.header import RequestHeader
from broker.requests.request import DeclaredApi, Request
from planes.admission import HOPELESS

CONTROL, REPLICATION, GROUP, METADATA, PRODUCE, FETCH, ADMIN = REQUEST_CLASSES
DEFAULT_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    DOORKEEPER_CLASS_LEVELS.default
)
_API_FETCH: Final = int(ApiKey.FETCH)
_REPLICA_ID = struct.Struct(">i")
# From version 15 the replica id is tagged field 1, the last thing in a frame:
# tag, size, replica id (int32), replica epoch (int64), no tagged fields of its own.
_REPLICA_STATE = struct.Struct(">BBiqB")
_UNKNOWN_COST_NS: Final = 50_000
# A moving average over about eight requests.
_AVERAGE_SHIFT: Final = 3

Classified: TypeAlias = tuple[str, int, str, int]
FlowOf: TypeAlias = Callable[[str, RequestHeader, int], str]


def _flow_client(request_class: str, header: RequestHeader, connection_id: int) -> str:
    # Two classes of one client may have different weights, so they are two flows.
    return f"{request_class}/{header.client_id}"


def _flow_connection(
    request_class: str, header: RequestHeader, connection_id: int
) -> str:
    return f"{request_class}/{connection_id}"


# None: the class is the flow.
FLOWS: Final[Mapping[str, FlowOf | None]] = MappingProxyType(
    {"class": None, "client.id": _flow_client, "connection": _flow_connection}
)


class Classifier:
    """Classifies requests, and learns what they cost.

    ``apis`` declare the classes; ``levels`` overrides the default priority of classes;
    ``flow`` is one of `FLOWS`.
    """

    def __init__(
        self,
        apis: Mapping[int, DeclaredApi],
        *,
        levels: Mapping[str, int] = DEFAULT_LEVELS,
        flow: str = "class",
    ) -> None:
        self._class_of = {key: api.request_class for key, api in apis.items()}
        self._levels = {**DEFAULT_LEVELS, **levels}
        self._flow_of = FLOWS[flow]
        self._cost_ns: dict[tuple[int, int], int] = {}
        self._cost_of_api_ns: dict[int, int] = {}

    def classify(
        self, header: RequestHeader, frame: bytes, connection_id: int
    ) -> Classified:
        """Return class, level, flow and expected CPU nanoseconds. Cost: O(1)."""
        api_key = header[0]
        request_class = self._class_of[api_key]
        if api_key == _API_FETCH and is_follower_fetch(header, frame):
            request_class = REPLICATION
        cost_ns = self._cost_ns.get((api_key, len(frame).bit_length()))
        if cost_ns is None:
            cost_ns = self._cost_of_api_ns.get(api_key, _UNKNOWN_COST_NS)
        flow = request_class
        if self._flow_of is not None:
            flow = self._flow_of(request_class, header, connection_id)
        return request_class, self._levels[request_class], flow, cost_ns

    def learn(self, request: Request) -> None:
        """Learn from a request that is done what it has cost.

        One that was turned away teaches nothing, unless it was for its expected cost:
        then that is doubted, so that a wrong estimate does not last.
        """
        if request.refusal is None:
            cost_ns = request.service_ns
        elif request.refusal == HOPELESS:
            cost_ns = 0
        else:
            return
        api_key = request.api_key
        bucket = api_key, request.size_bytes.bit_length()
        by_bucket, by_api = self._cost_ns, self._cost_of_api_ns
        known_ns = by_bucket.get(bucket, cost_ns)
        by_bucket[bucket] = known_ns + (cost_ns - known_ns >> _AVERAGE_SHIFT)
        known_ns = by_api.get(api_key, cost_ns)
        by_api[api_key] = known_ns + (cost_ns - known_ns >> _AVERAGE_SHIFT)


def is_follower_fetch(header: RequestHeader, frame: bytes) -> bool:
    """Say whether a Fetch comes from a replica: from its replica id, in any version."""
    if header.api_version < 15:
        if len(frame) < header.body_offset + _REPLICA_ID.size:
            return False
        replica_id: int = _REPLICA_ID.unpack_from(frame, header.body_offset)[0]
        return replica_id >= 0
    at = len(frame) - _REPLICA_STATE.size
    if at < header.body_offset:
        return False
    tag, size, replica_id, _, tagged = _REPLICA_STATE.unpack_from(frame, at)
    return tag == 1 and size == 13 and tagged == 0 and replica_id >= 0
