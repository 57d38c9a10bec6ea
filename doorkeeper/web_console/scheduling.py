"""The change of a running scheduler: weights of flows, and the ageing time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.client.admin_changes import BROKER
from broker.config import (
    DOORKEEPER_DATA_SCHEDULER,
    DOORKEEPER_PRIORITY_AGEING_MS,
    DOORKEEPER_WFQ_WEIGHTS,
)
from broker.protocol.errors import ConfigError
from doorkeeper.web_console.change import (
    Action,
    Change,
    Field,
    Form,
    Outcome,
    Refused,
    command,
)
from doorkeeper.web_console.cluster_view import ClusterView, each_of
from doorkeeper.web_console.request_watch import BrokerRequests

# Fields of the form by key, and the policies for which the key takes effect at once.
_KEYS: Final = (
    (DOORKEEPER_WFQ_WEIGHTS, "weights", ("wfq",)),
    (DOORKEEPER_PRIORITY_AGEING_MS, "ageing", ("priority", "np-priority")),
)
_OF_PLANES: Final = ("planes", "planes-lending")
# Brokers whose values a preview shows.
_SHOWN_MAX: Final = 100


async def _alter_scheduler(view: ClusterView, form: Form) -> Change:
    values = _values(form)
    name = form.optional("id") or ""
    alive = [it.id for it in (await view.cluster()).brokers if not it.is_fenced]
    chosen = [it for it in alive if not name or str(it) == name]
    if name and not chosen:
        raise form.refused("id", "is no broker that is alive")
    found, failed = await each_of(sorted(chosen)[:_SHOWN_MAX], view.requests)
    for error in failed.values():
        raise error
    ours = {it: row for it, row in sorted(found.items()) if row.scheduler is not None}
    if not ours:
        raise Refused("there is no broker of Doorkeeper among them")
    table = [("Broker", "Key", "Now", "New", "Takes effect")]
    for broker_id, row in ours.items():
        present = {it.name: it.value for it in row.options}
        for key, _, at_once in _KEYS:
            if key.name in values:
                when = "at once" if _policy(row, present) in at_once else "next start"
                now, new = present.get(key.name) or "", values[key.name]
                table.append((str(broker_id), key.name, now, new, when))
    one = ("--entity-name", name) if name else ("--entity-default",)
    pairs = ",".join(
        f"{key}=[{it}]" if "," in it else f"{key}={it}" for key, it in values.items()
    )
    words = ("--alter", "--entity-type", "brokers", *one, "--add-config", pairs)

    async def carry_out() -> Outcome:
        await view.admin.alter_configs(BROKER, name, values)
        return Outcome([f"{len(values)} set"])

    return Change([command(view, "kafka-configs", *words)], carry_out, table=table)


def _values(form: Form) -> Mapping[str, str]:
    """Return the given values by key, checked as a broker checks them."""
    values = {}
    for key, field, _ in _KEYS:
        written = (form.optional(field) or "").strip()
        if written:
            try:
                key.read(written)
            except ConfigError as error:
                raise Refused(str(error)) from error
            values[key.name] = written
    if not values:
        raise Refused("there is nothing to set")
    return values


def _policy(row: BrokerRequests, present: Mapping[str, str | None]) -> str | None:
    """Return the policy of the data plane."""
    if row.scheduler in _OF_PLANES:
        return present.get(DOORKEEPER_DATA_SCHEDULER.name)
    return row.scheduler


ACTIONS: Final[Mapping[str, Action]] = MappingProxyType(
    {
        "alter-scheduler": Action(
            "Alter the scheduler",
            "requests",
            (
                Field("id", "Broker (all if empty)"),
                Field("weights", "Weights, as class:weight,... (as before if empty)"),
                Field("ageing", "Ageing of priorities in ms (as before if empty)"),
            ),
            _alter_scheduler,
            MappingProxyType({"id": "id"}),
        )
    }
)
