"""Message classes of kio: code is read at a start, and runs at first use.

Running all schema modules of the served APIs takes two thirds of a broker's start,
since each builds several dataclasses. Reading their compiled code takes a tenth. A
broker therefore reads the code before clients connect (`read_module`), and runs a
module when its message is first received or sent. No module is imported while the
broker serves: an import opens files, which fails when descriptors have run out.

The modules depend only on modules of kio that `message` and this module import. A
module that runs here is also found by an ``import`` statement, and vice versa. Classes
of `later_versions` are built from those of the preceding version.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from threading import Lock
from types import CodeType
from typing import Any, Final, Literal, TypeAlias

import kio.schema
import kio.schema.types
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from broker.protocol.schemas.later_versions import LATER_VERSIONS, following

Kind: TypeAlias = Literal[EntityType.request, EntityType.response]

_ROOT: Final = Path(kio.schema.__path__[0])
# Code of modules that have not run yet, by name.
_CODE: Final[dict[str, CodeType]] = {}
# Classes of versions missing in kio, by API, version and kind.
_BUILT: Final[dict[tuple[int, int, Kind], type[Any]]] = {}
# Brokers in one process share the classes.
_RUNNING: Final = Lock()


def read_module(api_key: int, version: int, kind: Kind) -> None:
    """Read the module of a message; raise ``KeyError`` if there is no such message."""
    if (api_key, version) in LATER_VERSIONS:
        return read_module(api_key, version - 1, kind)
    name, _ = _place(api_key, version, kind)
    if name not in sys.modules and name not in _CODE:
        _CODE[name] = _code_of(name)
    return None


def versions_of(api_key: int) -> list[int]:
    """Return all versions of an API, those of kio and later ones."""
    later = [version for key, version in LATER_VERSIONS if key == api_key]
    return sorted([*schema_name_map[api_key_map[api_key]], *later])


def entity_class(api_key: int, version: int, kind: Kind) -> type[Any]:
    """Return the class of a message; raise ``KeyError`` if there is no such message."""
    if (api_key, version) in LATER_VERSIONS:
        return _following(api_key, version, kind)
    name, class_name = _place(api_key, version, kind)
    module = sys.modules.get(name)
    if module is None:
        with _RUNNING:
            module = sys.modules.get(name) or _run(name)
    found: type[Any] = getattr(module, class_name)
    return found


def _following(api_key: int, version: int, kind: Kind) -> type[Any]:
    before = entity_class(api_key, version - 1, kind)
    with _RUNNING:
        found = _BUILT.get((api_key, version, kind))
        if found is None:
            found = _BUILT[api_key, version, kind] = following(before, api_key)
    return found


def _place(api_key: int, version: int, kind: Kind) -> tuple[str, str]:
    """Return the names of the module and of the class."""
    name, _, class_name = schema_name_map[api_key_map[api_key]][version][
        kind
    ].partition(":")
    return name, class_name


def _run(name: str) -> Any:
    code = _CODE.pop(name, None) or _code_of(name)
    spec = importlib.util.spec_from_file_location(name, _path_of(name))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(code, module.__dict__)
    sys.modules[name] = module
    return module


def _code_of(name: str) -> CodeType:
    code = SourceFileLoader(name, _path_of(name)).get_code(name)
    assert code is not None
    return code


def _path_of(name: str) -> str:
    """Return the file of a module ``kio.schema.fetch.v4.request``."""
    return f"{_ROOT.joinpath(*name.split('.')[2:])}.py"
