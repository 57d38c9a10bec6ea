"""Imports of libraries without the parts that a broker does not need.

A broker needs one compiled module each of kio, aiokafka and crc32c. An import of a
module runs the ``__init__`` of its packages. These import asyncio, a whole client, the
metadata of packages and argparse, which would take a fifth of a broker's start. Here
such an ``__init__`` is deferred until its first use (`defer_init`), so that a module
inside can be imported alone.

If hypothesis is installed, as in a developer's environment, kio imports it to register
test strategies. Here kio is imported once as if hypothesis were absent, unless it is
loaded already, as in tests.

All these packages can be imported as usual afterwards.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final, cast

# Packages whose ``__init__`` has not run yet.
_DEFERRED: Final[dict[str, ModuleSpec]] = {}
# Held while an ``__init__`` runs; other threads wait for its end.
_RUNNING: Final = RLock()


class _DeferredPackage(ModuleType):
    def __getattr__(self, name: str) -> Any:
        """Run the deferred ``__init__``, if any, and look up the name again."""
        with _RUNNING:
            spec = _DEFERRED.pop(self.__name__, None)
            if spec is not None:
                assert spec.loader is not None
                spec.loader.exec_module(self)
        return ModuleType.__getattribute__(self, name)


def defer_init(name: str) -> None:
    """Defer the ``__init__`` of a package until a missing name of it is accessed."""
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = module_from_spec(spec)
    package.__class__ = _DeferredPackage
    _DEFERRED[name] = spec
    sys.modules[name] = package
    parent, _, tail = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], tail, package)


if "hypothesis" not in sys.modules:
    # None in sys.modules makes the import fail, which kio treats as an absence.
    sys.modules["hypothesis"] = cast(ModuleType, None)
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]

for _name in ("kio.serial", "aiokafka", "aiokafka.record", "crc32c"):
    defer_init(_name)
