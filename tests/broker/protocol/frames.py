"""Kafka's own frames, from the table that golden/make_golden.py made."""

import dataclasses
import json
from pathlib import Path

from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.wire.header import parse_request_header

TABLE = Path(__file__).parent / "golden" / "kafka-3.9.1.tsv"


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
    for line in TABLE.read_text().splitlines():
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
