"""All APIs of the broker by key, as declared by the files of ``broker.apis``.

Every file of the folder that declares an ``API`` is registered. ApiVersions, which
lists all other APIs, is declared over them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

import broker.apis
from broker.apis import api_versions
from broker.apis.common.api import Api
from broker.protocol.wire import codec


def _declared() -> Mapping[int, Api]:
    found: dict[int, Api] = {}
    for each in pkgutil.iter_modules(broker.apis.__path__):
        module = import_module(f"broker.apis.{each.name}")
        if each.ispkg or module is api_versions:
            continue
        api: Api = module.API
        assert api.key not in found, f"{each.name} declares {api.key!r} once more"
        found[api.key] = api
    listing = api_versions.declare(found)
    found[listing.key] = listing
    return MappingProxyType(found)


APIS: Final = _declared()


def load_schemas() -> None:
    """Load the message schemas of all APIs, before clients connect."""
    for key, api in APIS.items():
        codec.load_schemas(key, api.versions)
