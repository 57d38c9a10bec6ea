"""DeleteAcls (31): delete the access control lists that match filters.

Versions: 1-3.

Behaviour: the response lists the deleted entries of each filter; deletions are durable
before the response. An entry that several filters match is listed under the first one.
A filter with an unknown kind fails with INVALID_REQUEST. Without an authorizer each
filter fails with SECURITY_DISABLED. A request can be preempted between patterns.

Version notes: v1 has pattern types (KIP-290), v2 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.acl_requests import (
    SECURITY_DISABLED,
    alter_acls,
    filter_of,
)
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    ResourcePattern,
)
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, in_steps, preempt

_UNKNOWN_KIND: Final = KafkaError(
    ErrorCode.invalid_request, "The filter has an unknown kind."
)


async def handle(
    request: Request, body: DeleteAclsRequest, broker: Broker
) -> DeleteAclsResponse:
    """Delete the matching entries, and list them by filter."""
    filters = [filter_of(row) async for row in in_steps(body.filters)]
    if broker.authorizer is None:
        rows = [
            DeleteAclsFilterResult(
                error_code=SECURITY_DISABLED.code,
                error_message=SECURITY_DISABLED.message,
                matching_acls=(),
            )
            async for _ in in_steps(filters)
        ]
        return DeleteAclsResponse(filter_results=rows)
    matched = await _delete(filters, broker)
    rows = []
    async for index, each in in_steps(enumerate(filters)):
        outcome = _UNKNOWN_KIND if each.has_unknown_kind else NO_ERROR
        rows.append(
            DeleteAclsFilterResult(
                error_code=outcome.code,
                error_message=outcome.message,
                matching_acls=matched.get(index, ()),
            )
        )
    return DeleteAclsResponse(filter_results=rows)


async def _delete(
    filters: list[AclFilter], broker: Broker
) -> dict[int, list[DeleteAclsMatchingAcl]]:
    """Return the deleted entries by the index of their filter."""
    removals: dict[ResourcePattern, _Removal] = {}
    pace = Pace()
    async for pattern, entries in pace.over(
        tuple(broker.coordinator.admin.acls.items())
    ):
        removal = _Removal(
            [
                (index, each)
                async for index, each in pace.over(enumerate(filters))
                if each.passes_pattern(pattern)
            ]
        )
        if removal.filters:
            async for entry in pace.over(entries):
                removal.first_match(entry)
                await preempt()
            removals[pattern] = removal
    changes = {pattern: each.alter for pattern, each in removals.items()}
    failed = await alter_acls(changes, broker)
    rows: dict[int, list[DeleteAclsMatchingAcl]] = {}
    async for pattern, removal in pace.over(removals.items()):
        outcome = failed.get(pattern, NO_ERROR)
        async for entry, index in pace.over(removal.removed.items()):
            rows.setdefault(index, []).append(_row(pattern, entry, outcome))
    return rows


class _Removal:
    """The alteration of one pattern, and the entries that it removes.

    ``filters`` are the filters that match the pattern, with their indexes in the
    request.
    """

    def __init__(self, filters: list[tuple[int, AclFilter]]) -> None:
        self.filters = filters
        # Removed entries, with the index of the first matching filter.
        self.removed: dict[AclEntry, int] = {}
        self._found: dict[AclEntry, int | None] = {}

    def first_match(self, entry: AclEntry) -> int | None:
        """Return the index of the first filter that matches an entry, and cache it."""
        if entry not in self._found:
            matches = (at for at, each in self.filters if each.passes_entry(entry))
            self._found[entry] = next(matches, None)
        return self._found[entry]

    def alter(self, present: frozenset[AclEntry]) -> frozenset[AclEntry]:
        """Return the remaining entries; results of earlier calls are cached."""
        found = {entry: self.first_match(entry) for entry in present}
        self.removed = {
            entry: index for entry, index in found.items() if index is not None
        }
        return present.difference(self.removed)


def _row(
    pattern: ResourcePattern, entry: AclEntry, outcome: KafkaError
) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


API: Final = Api(
    key=ApiKey.DELETE_ACLS,
    versions=(1, 3),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
    error_answer=ErrorAnswer(rows={"filter_results": ("filters",)}),
)
