"""Kafka's own frames, from the table that golden/make_golden.py made."""

import dataclasses
import json
from pathlib import Path

from hypothesis import strategies as st

from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.wire.header import parse_request_header

TABLES = sorted((Path(__file__).parent / "golden").glob("kafka-*.tsv"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Golden:
    api_key: int
    version: int
    direction: str
    kind: str
    values: object
    frame: bytes

    @property
    def body_offset(self) -> int:
        if self.direction == "request":
            return parse_request_header(self.frame).body_offset
        tagged = self.version >= FIRST_FLEXIBLE[self.api_key]
        return 5 if tagged and self.api_key != ApiKey.API_VERSIONS else 4

    def __str__(self) -> str:
        name = ApiKey(self.api_key).name
        return f"{name}-v{self.version}-{self.direction}-{self.kind}"


def read_table() -> list[Golden]:
    rows = []
    for line in (it for table in TABLES for it in table.read_text().splitlines()):
        key, version, direction, kind, values, frame = line.split("\t")
        rows.append(
            Golden(
                api_key=int(key),
                version=int(version),
                direction=direction,
                kind=kind,
                values=json.loads(values),
                frame=bytes.fromhex(frame),
            )
        )
    return rows


GOLDEN = read_table()
# Frames by API, for tests that run over all messages of an API.
GOLDEN_OF = {
    ApiKey(key).name: [row for row in GOLDEN if row.api_key == key]
    for key in sorted({row.api_key for row in GOLDEN})
}

# Sizes and lengths that are invalid for any field, and parts of varints and tags.
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08")
ODD = (
    *HUGE,
    b"\xff\xff\xff\xff",
    b"\xff\xff",
    b"\x80\x00",
    b"\x00\x00",
    b"\x01\x05\x00",
)


def mutated(draw: st.DrawFn, frame: bytes, start: int) -> bytes:
    """Overwrite, insert or cut off a few bytes of a frame from ``start`` on."""
    changed = bytearray(frame)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(start, max(start, len(changed) - 1)))
        piece = draw(st.sampled_from(ODD) | st.binary(max_size=6))
        match draw(st.sampled_from(("overwrite", "insert", "cut"))):
            case "overwrite":
                changed[at : at + len(piece)] = piece
            case "insert":
                changed[at:at] = piece
            case "cut":
                del changed[at:]
    return bytes(changed)
