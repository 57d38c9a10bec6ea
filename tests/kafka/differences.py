"""Allowed differences between Apache Kafka's responses and Doorkeeper's.

The documented table in ``allowed_differences.md`` is also the input of the tests, so
both always agree. A row allows one field (a path without indexes, with ``*``) of an
API's responses to have certain values; any other difference is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("allowed_differences.md")
ABSENT = "absent"
_ASKED_MAX = 300
# Members of an array are matched by these fields, in this order. The order of an array
# has no meaning to a client, except in Fetch.
IDENTITIES = (
    "api_key",
    "node_id",
    "broker_id",
    "resource_name",
    "group_id",
    "member_id",
    "name",
    "topic",
    "topic_name",
    "partition",
    "partition_index",
    "partition_id",
    "index",
)
_ORDERED = ("FETCH",)


class Difference(NamedTuple):
    """A field with different values in the two responses."""

    api: str
    field: str
    kafka: Any
    ours: Any
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A row of the table."""

    api: str
    field: str
    kafka: str
    ours: str

    def covers(self, difference: Difference) -> bool:
        """Return whether this row allows the difference."""
        api = difference.api.partition(" ")[0]
        return (
            fnmatchcase(api, self.api)
            and fnmatchcase(difference.field, self.field)
            and fnmatchcase(str(difference.kafka), self.kafka)
            and fnmatchcase(str(difference.ours), self.ours)
        )


def read_table() -> list[Allowance]:
    """Return the rows of the documented table."""
    rows = []
    for line in TABLE.read_text().splitlines():
        if line.startswith("| `"):
            api, field, kafka, ours, _reason = line.strip("| ").split(" | ")
            cells = [cell.strip("` ") for cell in (api, field, kafka, ours)]
            rows.append(
                Allowance(api=cells[0], field=cells[1], kafka=cells[2], ours=cells[3])
            )
    return rows


def differences(
    kafka: Sequence[tuple[str, Any]],
    ours: Sequence[tuple[str, Any]],
    asked: Sequence[str],
) -> Iterator[Difference]:
    """Yield every difference between two lists of responses."""
    assert [what for what, _ in kafka] == [what for what, _ in ours], (kafka, ours)
    for (what, expected), (_, found), request in zip(kafka, ours, asked, strict=True):
        for field, *values in _compare(what, "", expected, found):
            yield Difference(what, field, *values, request)


def _compare(
    what: str, path: str, kafka: Any, ours: Any
) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in {**kafka, **ours}:
            inner = f"{path}.{name}" if path else name
            yield from _compare(
                what, inner, kafka.get(name, ABSENT), ours.get(name, ABSENT)
            )
    elif isinstance(kafka, list) and isinstance(ours, list):
        yield from _compare_lists(what, path, kafka, ours)
    elif kafka != ours:
        yield path, kafka, ours


def _compare_lists(
    what: str, path: str, kafka: list[Any], ours: list[Any]
) -> Iterator[tuple[str, Any, Any]]:
    members = [each for each in (*kafka, *ours) if isinstance(each, dict)]
    identities = [name for name in IDENTITIES if any(name in each for each in members)]
    if not identities and any("topic_id" in each for each in members):
        identities = ["topic_id"]
    if not identities or what.startswith(_ORDERED):
        if len(kafka) != len(ours) or not members:
            if kafka != ours:
                yield path, kafka, ours
            return
        for expected, found in zip(kafka, ours, strict=True):
            yield from _compare(what, path, expected, found)
        return
    by_kafka, by_us = _by(identities, kafka), _by(identities, ours)
    for identity in {**by_kafka, **by_us}:
        label = (
            f"{path}[{','.join(str(part) for part in identity if part is not None)}]"
        )
        yield from _compare(
            what, label, by_kafka.get(identity, ABSENT), by_us.get(identity, ABSENT)
        )


def _by(identities: list[str], members: list[Any]) -> dict[tuple[Any, ...], Any]:
    found: dict[tuple[Any, ...], Any] = {}
    for each in members:
        identity = tuple(each.get(name) for name in identities)
        if identity in found:
            # A topic requested by id may have no name.
            identity += (each.get("topic_id"), len(found))
        found[identity] = each
    return found


def summary(left: Sequence[Difference]) -> str:
    """Return the differences as lines, one for all versions of an API."""
    versions: dict[tuple[str, str, str, str], list[str]] = {}
    asked: dict[tuple[str, str, str, str], str] = {}
    for each in left:
        api, _, version = each.api.partition(" ")
        key = (api, each.field, repr(each.kafka), repr(each.ours))
        versions.setdefault(key, []).append(version)
        asked.setdefault(key, each.asked[:_ASKED_MAX])
    return "\n".join(
        f"{key[0]} {','.join(dict.fromkeys(found))} {key[1]}: "
        f"Kafka {key[2]}, we {key[3]}; first asked {asked[key]}"
        for key, found in versions.items()
    )
