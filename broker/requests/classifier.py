"""Classification of requests for the scheduler: class, level, flow, expected cost.

The class is declared by the API (`broker.apis`). For Fetch it also depends on the
replica id: a Fetch by a follower is replication. Misclassification affects preemptive
policies most. Classifying 1 % of data as control multiplies the wait of control by 1.6
with preemption, by 1.01 without (M/G/1, set A of ``tests/model/test_theory.py``). So
the class is never guessed from sizes, names or history. Claims are not trusted: a
request of a role that its connection may not claim (`broker.requests.entitlement`) is
in the least urgent class, and is denied.

The expected cost is a moving average of the CPU time of requests of the same API and
size class (powers of two). Policies by size and fair policies use this estimate until
the true cost is known. Admission under ``deadline`` rejects requests that would be late
according to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from broker.authorization.authorizer import Authorizer
from broker.config.doorkeeper_keys import DOORKEEPER_CLASS_LEVELS, REQUEST_CLASSES
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.header import RequestHeader
from broker.requests.entitlement import Role, may_claim_role
from broker.requests.request import DeclaredApi, Peer, Request
from planes.admission import HOPELESS

CONTROL, REPLICATION, GROUP, METADATA, PRODUCE, FETCH, ADMIN = REQUEST_CLASSES
DEFAULT_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    DOORKEEPER_CLASS_LEVELS.default
)
_API_FETCH: Final = int(ApiKey.FETCH)
_UNKNOWN_COST_NS: Final = 50_000
# A moving average over about eight requests.
_AVERAGE_SHIFT: Final = 3

# Class, level, flow, expected CPU nanoseconds, whether the request is denied.
Classified: TypeAlias = tuple[str, int, str, int, bool]
FlowOf: TypeAlias = Callable[[str, RequestHeader, int], str]


def _flow_client(request_class: str, header: RequestHeader, connection_id: int) -> str:
    # Classes of one client may have different weights, so each class is a flow.
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
    """Classifier of requests, which learns their cost.

    ``apis`` declare the classes; ``levels`` overrides the default priority of classes;
    ``flow`` is one of `FLOWS`; an ``authorizer`` decides about roles.
    """

    def __init__(
        self,
        apis: Mapping[int, DeclaredApi],
        *,
        levels: Mapping[str, int] = DEFAULT_LEVELS,
        flow: str = "class",
        authorizer: Authorizer | None = None,
    ) -> None:
        self._declared = {
            key: (api.request_class, api.role, api.replica_id)
            for key, api in apis.items()
        }
        self._levels = {**DEFAULT_LEVELS, **levels}
        # If several classes are least urgent, the last one: by default admin.
        least_urgent = max(self._levels.values())
        self._class_of_denied = [
            each for each in REQUEST_CLASSES if self._levels[each] == least_urgent
        ][-1]
        self._flow_of = FLOWS[flow]
        self._authorizer = authorizer
        self._cost_ns: dict[tuple[int, int], int] = {}
        self._cost_of_api_ns: dict[int, int] = {}

    def classify(self, header: RequestHeader, frame: bytes, peer: Peer) -> Classified:
        """Return class, level, flow, expected cost, and whether to deny. Cost: O(1)."""
        api_key = header[0]
        request_class, role, replica_id = self._declared[api_key]
        if replica_id is not None and replica_id(header, frame) >= 0:
            role = Role.BROKER
            if api_key == _API_FETCH:
                request_class = REPLICATION
        is_denied = role is not None and not may_claim_role(
            peer, api_key, role, self._authorizer
        )
        if is_denied:
            request_class = self._class_of_denied
        cost_ns = self._cost_ns.get((api_key, len(frame).bit_length()))
        if cost_ns is None:
            cost_ns = self._cost_of_api_ns.get(api_key, _UNKNOWN_COST_NS)
        flow = request_class
        if self._flow_of is not None:
            flow = self._flow_of(request_class, header, peer.connection_id)
        level = self._levels[request_class]
        return request_class, level, flow, cost_ns, is_denied

    def learn(self, request: Request) -> None:
        """Update the expected cost from a finished request.

        Rejected and denied requests change nothing, with one exception: if a request
        was rejected because of its expected cost, the estimate is lowered, so that a
        wrong estimate does not persist.
        """
        if request.is_denied:
            return
        task = request.task
        if task.refusal is None:
            cost_ns = task.service_ns
        elif task.refusal == HOPELESS:
            cost_ns = 0
        else:
            return
        api_key = request.api_key
        bucket = api_key, task.size_bytes.bit_length()
        by_bucket, by_api = self._cost_ns, self._cost_of_api_ns
        known_ns = by_bucket.get(bucket, cost_ns)
        by_bucket[bucket] = known_ns + (cost_ns - known_ns >> _AVERAGE_SHIFT)
        known_ns = by_api.get(api_key, cost_ns)
        by_api[api_key] = known_ns + (cost_ns - known_ns >> _AVERAGE_SHIFT)
