"""Dynamic levels of the broker's loggers, under Kafka's names.

Loggers are those of this process, named after their modules; ``root`` is the root
logger. A logger without a level has that of its nearest ancestor. A restart restores
the level of ``doorkeeper.log.level``, as Kafka restores that of its log4j file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.observation.logs import ROOT

ROOT_NAME: Final = "root"
# Kafka's LogLevelConfig. Python predefines no level below DEBUG.
LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "FATAL": logging.CRITICAL,
        "ERROR": logging.ERROR,
        "WARN": logging.WARNING,
        "INFO": logging.INFO,
        "DEBUG": logging.DEBUG,
        "TRACE": logging.DEBUG // 2,
    }
)


def log_levels() -> Mapping[str, str]:
    """Return the effective level of every logger by name, the root first."""
    return {ROOT_NAME: _in_force(ROOT)} | {name: _in_force(name) for name in _names()}


def has_logger(name: str) -> bool:
    """Return whether a logger exists."""
    return name == ROOT_NAME or _is_known(name)


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level to one of `LEVELS`; None: inherit its parent's level."""
    assert has_logger(name), name
    assert level is not None or name != ROOT_NAME, name
    number = logging.NOTSET if level is None else LEVELS[level]
    logging.getLogger(ROOT if name == ROOT_NAME else name).setLevel(number)


def _names() -> list[str]:
    return sorted(filter(_is_known, logging.root.manager.loggerDict))


def _is_known(name: str) -> bool:
    logger = logging.root.manager.loggerDict.get(name)
    return isinstance(logger, logging.Logger) and name.startswith(f"{ROOT}.")


def _in_force(name: str) -> str:
    """Return Kafka's name of a level, rounded up to the next more severe level."""
    number = logging.getLogger(name).getEffectiveLevel()
    at_least = {level: of for level, of in LEVELS.items() if of >= number}
    return min(at_least, key=at_least.__getitem__, default="FATAL")
