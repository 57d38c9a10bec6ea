"""Quota keys of an entity, and stored quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from broker.coordination.coordinator_roles import ConfigKind
from broker.node.broker import Broker
from broker.quotas.address_rates import CONNECTION_CREATION_RATE
from broker.quotas.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from broker.quotas.entity import IP, USER, path_of, user_of

_OF_CLIENTS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
# Keys whose values may have a fraction; the others are integers.
DECIMAL: Final = frozenset({REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})


def keys_of(names: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the keys that an entity may have, given its names by type."""
    return (CONNECTION_CREATION_RATE,) if IP in names else _OF_CLIENTS


def stored_quotas(broker: Broker) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Iterate over all entities and their configs, as they are now."""
    configs = broker.coordinator.admin.configs
    for user, own in sorted(configs[ConfigKind.USER].items()):
        yield path_of({USER: user}), own
    yield from sorted(configs[ConfigKind.CLIENT].items())


async def set_quotas(
    broker: Broker, entity: str, changes: Mapping[str, str | None]
) -> None:
    """Apply changes of an entity (None: remove), retrying after concurrent changes."""
    admin, user = broker.coordinator.admin, user_of(entity)
    kind, name = ConfigKind.CLIENT, entity
    if user is not None:
        kind, name = ConfigKind.USER, user
    done = False
    while not done:
        present = admin.configs[kind].get(name, {})
        merged = {**present, **changes}
        configs = {key: value for key, value in merged.items() if value is not None}
        done = await admin.set_configs(kind, name, configs, present)
