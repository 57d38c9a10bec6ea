"""Entities with quotas, as paths of Kafka's znodes and notifications.

``users/U``, ``users/U/clients/C``, ``clients/C`` and ``ips/A``; names are encoded as by
Kafka's ``Sanitizer``, so that ``<default>`` can only be the default.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final
from urllib.parse import quote, unquote

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
DEFAULT: Final = "<default>"

_FOLDERS: Final = MappingProxyType({USER: "users", CLIENT_ID: "clients", IP: "ips"})
_TYPES: Final = MappingProxyType({folder: kind for kind, folder in _FOLDERS.items()})


def sanitized(name: str | None) -> str:
    """Return a name in its encoded form for paths; None is the default."""
    return DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")


def path_of(names: dict[str, str | None]) -> str:
    """Return the path of an entity, given its names by type."""
    return "/".join(
        f"{folder}/{sanitized(names[kind])}"
        for kind, folder in _FOLDERS.items()
        if kind in names
    )


def names_of(path: str) -> dict[str, str | None]:
    """Return the names of an entity by type."""
    parts = path.split("/")
    return {
        _TYPES[folder]: None if name == DEFAULT else unquote(name)
        for folder, name in zip(parts[::2], parts[1::2], strict=True)
    }


def is_entity(path: str) -> bool:
    """Return whether a path has the form of an entity path."""
    parts = path.split("/")
    folders = parts[::2]
    return all(parts) and (
        folders in (["users"], ["users", "clients"], ["clients"], ["ips"])
        and len(parts) == 2 * len(folders)
    )


def user_of(path: str) -> str | None:
    """Return the user of a path ``users/U``; None for any other path."""
    folder, _, name = path.partition("/")
    if folder != "users" or name == DEFAULT or "/" in name:
        return None
    return unquote(name)
