"""AlterClientQuotas (49): set and remove quotas of entities (KIP-546).

Versions: 0-1.

Behaviour:
- Each entity is altered completely or not at all, independently of the others. A
  successful change is durable, and in effect on this broker, before the response.
- An entity is a user, a client id, both, or an address; a null name is the default.
  INVALID_REQUEST is returned for any other entity, an unknown key, a byte rate with a
  fraction, and a value that is no number. The removal of an unset key succeeds.
- `validate_only` checks, but changes nothing.

Version notes: v1 is flexible.

Left out: names of hosts, since addresses are numeric.
"""

from __future__ import annotations

import ipaddress
import math
from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.quota_keys import DECIMAL, keys_of, set_quotas
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from broker.quotas.entity import CLIENT_ID, IP, USER, path_of
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt

# Kafka's tolerance for numbers that have to be integers.
_EPSILON: Final = 1e-6
_LONG_MAX: Final = 2**63 - 1


async def handle(
    request: Request, body: AlterClientQuotasRequest, broker: Broker
) -> AlterClientQuotasResponse:
    """Alter the entities, one after the other."""
    rows: list[ResponseEntryData] = []
    async for entry in in_steps(body.entries):
        names: dict[str, str | None] = {}
        async for part in in_steps(entry.entity):
            names[part.entity_type] = part.entity_name
        outcome = NO_ERROR
        try:
            await _alter(names, entry, broker, validate_only=body.validate_only)
        except KafkaError as error:
            outcome = error
        rows.append(
            ResponseEntryData(
                error_code=outcome.code,
                error_message=outcome.message,
                entity=[
                    ResponseEntityData(entity_type=kind, entity_name=name)
                    async for kind, name in in_steps(names.items())
                ],
            )
        )
        await preempt()
    return AlterClientQuotasResponse(entries=rows)


async def _alter(
    names: dict[str, str | None],
    entry: RequestEntryData,
    broker: Broker,
    *,
    validate_only: bool,
) -> None:
    _check(names)
    keys = keys_of(names)
    changes: dict[str, str | None] = {}
    async for op in in_steps(entry.ops):
        if not op.remove:
            changes[op.key] = _written(op, keys)
        elif op.key in keys:
            changes[op.key] = None
    if not validate_only:
        await set_quotas(broker, path_of(names), changes)


def _check(names: dict[str, str | None]) -> None:
    """Raise INVALID_REQUEST unless the names are those of an entity."""
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    address = names.get(IP)
    if IP in names and len(names) > 1:
        raise _invalid("An address cannot be combined with a user or a client id.")
    if address is not None:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise _invalid(f"{address} is not a numeric address") from error


def _written(op: OpData, keys: tuple[str, ...]) -> str:
    """Return a value in its stored, Java-readable form; raise INVALID_REQUEST."""
    value = op.value
    if op.key not in keys:
        raise _invalid(f"Invalid configuration key {op.key}")
    if math.isnan(value):
        raise _invalid(f"Configuration {op.key} must be a number")
    if op.key in DECIMAL:
        return str(value).replace("inf", "Infinity")
    if not abs(value) < _LONG_MAX or abs(int(value + _EPSILON) - value) > _EPSILON:
        raise _invalid(f"Configuration {op.key} must be a whole number")
    return str(int(value + _EPSILON))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


API: Final = Api(
    key=ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER_CONFIGS),
    error_answer=ErrorAnswer(
        rows={"entries": ("entries",), "entity": ("entity",)},
    ),
)
