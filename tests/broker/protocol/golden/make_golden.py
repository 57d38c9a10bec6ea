"""Make ``kafka-*.tsv``: every message as Kafka's own serializer writes it.

Run by hand, with the jars of kafka-clients 3.9.1, jackson-databind, jackson-core,
jackson-annotations (2.16) and slf4j-api in a directory, and a JDK of 17 or later:

    python make_golden.py DIRECTORY_OF_JARS > kafka-3.9.1.tsv

With the jars of Kafka 4.4.0 and this table, a second one holds the newer versions of
served APIs:

    python make_golden.py DIRECTORY_OF_JARS kafka-3.9.1.tsv > kafka-4.4.0.tsv

Two messages per API, direction and version: ``full`` has every field set, arrays of
two, and all values distinct, so that swapped fields show; ``bare`` has nulls, empty
arrays and default values. The values are made from the schemas inside the jar.
Columns: api key, version, request or response, full or bare, JSON, frame in hex.
"""

import base64
import json
import re
import subprocess
import sys
import zipfile
from itertools import count
from pathlib import Path

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import NEVER
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.codec import request_type

HERE = Path(__file__).parent
# Served APIs, and planned ones: security, transactions, quotas, KIP-848.
KEYS = {*APIS, 17, *range(24, 32), 34, 36, *range(48, 52), 56, 61, 65, 66, 68, 69}


def main() -> None:
    """Print the table."""
    jars = sorted(Path(sys.argv[1]).glob("*.jar"))
    lines = [it for table in sys.argv[2:] for it in Path(table).read_text().split("\n")]
    known = {tuple(line.split("\t")[:3]) for line in lines}
    keys = APIS.keys() if known else KEYS
    with zipfile.ZipFile(next(j for j in jars if "kafka-clients" in j.name)) as jar:
        schemas = [
            json.loads(re.sub(r"(?m)//.*$", "", jar.read(name).decode()))
            for name in jar.namelist()
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name)
        ]
    rows = []
    for schema in sorted(schemas, key=lambda each: (each["apiKey"], each["type"])):
        key = schema["apiKey"]
        if key not in keys:
            continue
        for version in versions(schema):
            if (str(key), str(version), schema["type"]) in known:
                continue
            for full in (True, False):
                values = Values(schema, version, full).message()
                rows.append((schema, key, version, full, json.dumps(values)))
    lines = "".join(f"{s['name']}\t{k}\t{v}\t{j}\n" for s, k, v, _, j in rows)
    printed = subprocess.run(
        ["java", "-cp", ":".join(map(str, jars)), str(HERE / "Golden.java")],
        input=lines,
        capture_output=True,
        text=True,
    )
    if printed.returncode:
        sys.exit(printed.stderr)
    for (schema, key, version, full, values), frame in zip(
        rows, printed.stdout.split(), strict=True
    ):
        kind = "full" if full else "bare"
        print(key, version, schema["type"], kind, values, frame, sep="\t")


def versions(schema):
    """Yield the versions that requests and responses share."""
    key = schema["apiKey"]
    last = APIS[key].versions[1] if key in APIS else NEVER
    for version in range(last + 1):
        if covers(schema["validVersions"], version):
            try:
                request_type(schema["apiKey"], version)
            except MalformedFrame:
                continue
            yield version


def covers(versions: str, version: int) -> bool:
    """Return whether ``versions``, in a schema's notation, holds ``version``."""
    if versions == "none":
        return False
    low, plus, high = re.fullmatch(r"(\d+)(\+)?(?:-(\d+))?", versions).groups()
    return int(low) <= version <= (NEVER if plus else int(high or low))


class Values:
    """Values for one message at one version."""

    def __init__(self, schema, version, full):
        self.schema, self.version, self.full = schema, version, full
        self.structs = {s["name"]: s["fields"] for s in schema.get("commonStructs", [])}
        self.numbers = count(1)
        self.collect(schema["fields"])

    def collect(self, fields):
        """Record the structs declared inside fields."""
        for field in fields:
            if "fields" in field:
                self.structs[field["type"].removeprefix("[]")] = field["fields"]
                self.collect(field["fields"])

    def message(self):
        """Return the whole message."""
        return self.struct(self.schema["fields"])

    def struct(self, fields):
        """Return a struct as JSON."""
        return {
            field["name"][0].lower() + field["name"][1:]: self.value(field)
            for field in fields
            if covers(field["versions"], self.version)
            and (self.full or "tag" not in field)
        }

    def value(self, field):
        """Return the value of one field."""
        name, type_ = field["name"], field["type"]
        if not self.full and covers(
            field.get("nullableVersions", "none"), self.version
        ):
            return None
        if type_.startswith("[]"):
            item = type_.removeprefix("[]")
            return [self.item(name, item) for _ in range(2 * self.full)]
        return self.item(name, type_)

    def item(self, name, type_):
        """Return one value of a type other than an array."""
        if type_ in self.structs:
            return self.struct(self.structs[type_])
        number = next(self.numbers)
        if type_ == "int16" and name.endswith("ErrorCode"):
            return number % 80
        if type_ in ("bytes", "records"):
            return base64.b64encode(b"bytes-%d" % number).decode()
        return {
            "bool": number % 2 == 1,
            "int8": number % 100,
            "int16": number,
            "uint16": number,
            "int32": number,
            "int64": number,
            "float64": number / 2,
            "string": f"text-{number}",
            "uuid": base64.urlsafe_b64encode(number.to_bytes(16, "big"))
            .decode()
            .rstrip("="),
        }[type_]


if __name__ == "__main__":
    main()
