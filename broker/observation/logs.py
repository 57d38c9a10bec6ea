"""The broker's log: one line per event, as text or JSON.

An event is a constant sentence and named fields, never a sentence with values inside,
so that events can be counted and searched: ``log.info("group is stable",
extra=fields(group="g", generation=3))``. ``doorkeeper.log.format`` selects text,

    2026-11-21T10:00:00.123Z INFO group is stable group=g generation=3

or a JSON object. Lines go to standard error; standard output is reserved for the
addresses of the listeners. Requests are not logged; metrics and the recording contain
them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

ROOT: Final = "broker"
LEVELS: Final = ("debug", "info", "warn", "error")
FORMATS: Final = ("text", "json")
_FIELDS: Final = "fields"


def fields(**named: object) -> dict[str, Any]:
    """Return the ``extra`` argument of a logging call with these fields."""
    return {_FIELDS: named}


def configure_logs(stream: TextIO, *, level: str, form: str) -> None:
    """Write the broker's events of ``level`` and above to ``stream``, and only there.

    A second call replaces the first.
    """
    assert level in LEVELS, level
    assert form in FORMATS, form
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel("WARNING" if level == "warn" else level.upper())


class TextFormatter(logging.Formatter):
    """Time, level, event, and fields as ``name=value``; special values are quoted."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and a traceback below it if there is one."""
        words = [_time(record), record.levelname, record.getMessage()]
        words += [f"{name}={_quoted(value)}" for name, value in _named(record).items()]
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """JSON object per line: ``time``, ``level``, ``logger``, ``event``, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; a field cannot replace the first four names."""
        event = {
            **_named(record),
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


def _named(record: logging.LogRecord) -> Mapping[str, object]:
    named: Mapping[str, object] = getattr(record, _FIELDS, {})
    return named


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    """Return a value as one word, quoted if needed, since peers may choose values.

    >>> _quoted("plain"), _quoted('two words'), _quoted("a" + chr(10) + "forged line")
    ('plain', '"two words"', '"a\\\\nforged line"')
    """
    text = str(value)
    plain = text.isprintable() and not set(text) & set(' "=\\') and text
    return text if plain else json.dumps(text)
