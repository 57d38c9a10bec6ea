"""The extra that installs a missing module, read from the package's own metadata."""

from __future__ import annotations

import re
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

# Each includes the one before.
_EXTRAS: Final = ("lab", "analysis", "paper")
# The extra that a command needs; the others run with the base install.
_OF_COMMAND: Final = MappingProxyType(
    {
        "experiment": "lab",
        "calibrate": "lab",
        "theory": "lab",
        "analyze": "analysis",
        "results": "analysis",
        "paper": "paper",
        "console": "console",
    }
)
_REQUIREMENT: Final = re.compile(
    r"(?P<package>[\w.-]+)[^;]*; *extra *== *['\"](?P<extra>\w+)['\"]"
)


def missing_extra(command: str | None, module: str | None) -> str | None:
    """Return the extra that lets ``command`` run without ``module`` missing.

    None if no extra installs the module: the import error is then this package's fault.
    """
    wanted = (module or "").partition(".")[0]
    needed = _OF_COMMAND.get(command or "")
    if needed is not None and wanted in _modules(needed):
        return needed
    having = [extra for extra in _EXTRAS if wanted in _modules(extra)]
    if not having:
        return None
    return max((it for it in (needed, having[0]) if it in _EXTRAS), key=_EXTRAS.index)


def missing_module(extra: str) -> str | None:
    """Return a module of an extra that is not installed, None if all are."""
    return next((it for it in sorted(_modules(extra)) if find_spec(it) is None), None)


def _modules(extra: str) -> set[str]:
    """Return the modules of the packages that an extra itself declares."""
    # Imported here: the import takes a fortieth of a start.
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires("doorkeeper") or []
    except PackageNotFoundError:
        return set()
    matches = filter(None, map(_REQUIREMENT.match, declared))
    return {
        it["package"].lower().replace("-", "_")
        for it in matches
        if it["extra"] == extra
    }
