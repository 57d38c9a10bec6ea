"""Quota keys of an entity, and quotas as an admin manager stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

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
# Keys whose values may have a fraction; the others are whole numbers.
DECIMAL: Final = frozenset({REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})


def keys_of(names: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the keys that an entity may have, given its names by type."""
    return (CONNECTION_CREATION_RATE,) if IP in names else _OF_CLIENTS


def stored_quotas(broker: Broker) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Iterate over all entities and their configs, as they are now."""
    admin = broker.coordinator.admin
    for user, configs in sorted(admin.user_configs.items()):
        yield path_of({USER: user}), configs
    yield from sorted(admin.client_configs.items())


async def set_quotas(
    broker: Broker, entity: str, changes: Mapping[str, str | None]
) -> None:
    """Make changes of an entity (None: remove), whatever others change meanwhile."""
    admin, user = broker.coordinator.admin, user_of(entity)
    done = False
    while not done:
        present = (
            admin.client_configs.get(entity, {})
            if user is None
            else admin.user_configs.get(user, {})
        )
        merged = {**present, **changes}
        configs = {key: value for key, value in merged.items() if value is not None}
        if user is None:
            done = await admin.set_client_configs(entity, configs, present)
        else:
            done = await admin.set_user_configs(user, configs, present)
