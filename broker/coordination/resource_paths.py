"""Paths of resources that have configs only, such as ``groups/NAME``.

The kinds are those of Kafka (``ConfigEntityName``). A name may contain slashes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CLIENT_METRICS: Final = "client-metrics"
GROUPS: Final = "groups"


class ResourcePath(NamedTuple):
    """The kind of a resource, and its name."""

    kind: str
    name: str


def resource_path(kind: str, name: str) -> str:
    """Return the path of a resource."""
    return f"{kind}/{name}"


def read_path(path: str) -> ResourcePath:
    """Return the parts of a path."""
    kind, _, name = path.partition("/")
    return ResourcePath(kind, name)
