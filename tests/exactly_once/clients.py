"""Programs that copy ``source`` to ``target`` exactly once, by client library.

A program is called with the brokers' addresses, its name, a directory of its own, and a
seed. It copies each record as ``PARTITION OFFSET VALUE`` to the same partition of the
target, in transactions, as a member of the group ``copiers``. It aborts some
transactions on purpose; their records begin with ``aborted``. It exits at errors that
its client calls fatal, and is restarted. Kafka Connect's source reads lines of files
instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.worlds.kafka.apache_kafka import JARS, NoKafka, jars, java
from tests.exactly_once.connect import CONNECTOR, connect_command

_HERE: Final = Path(__file__).parent
_LOG4J: Final = _HERE.parent / "kafka" / "log4j.properties"
_FRANZ: Final = JARS / "franz" / "franz"
KAFKA: Final = "4.4.0"

# Maps the brokers' addresses, a name, a directory and a seed to a command.
Command = Callable[[str, str, Path, str], Sequence[str]]


class MissingError(Exception):
    """A program cannot run here; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Client:
    """A program, and its number of concurrent instances."""

    command: Command
    instances: tuple[str, ...] = ("a", "b")
    reads_files: bool = False


def _script(name: str) -> Command:
    def command(bootstrap: str, name_: str, at: Path, seed: str) -> list[str]:
        return [sys.executable, str(_HERE / name), bootstrap, name_, str(at), seed]

    return command


def _java(class_path: str, *options: str) -> list[str]:
    try:
        executable = java()
    except NoKafka as none:
        raise MissingError(str(none)) from none
    return [
        str(executable),
        *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options),
        *("-Xshare:auto", f"-Dlog4j.configuration={_LOG4J.as_uri()}"),
        *("-cp", class_path),
    ]


def _directory(name: str) -> Path:
    directory = JARS / name
    if not any(directory.glob("*.jar")):
        raise MissingError(f"{directory.name} is not here: `make kafka-tools`")
    return directory


def _kafka_jars() -> str:
    try:
        return f"{jars(KAFKA)}/*"
    except NoKafka as none:
        raise MissingError(str(none)) from none


def _compiled(name: str, class_path: str, at: Path) -> str:
    """Compile a Java program; return its class path."""
    if shutil.which("javac") is None:
        raise MissingError("there is no javac")
    classes = at / "classes"
    source = str(_HERE / f"{name}.java")
    subprocess.run(["javac", "-d", str(classes), "-cp", class_path, source], check=True)
    return f"{classes}{os.pathsep}{class_path}"


def _program(name: str, class_path: str, at: Path, *options: str) -> Command:
    """Return the command of a Java program."""
    start = [*_java(_compiled(name, class_path, at), *options), name]

    def command(bootstrap: str, instance: str, at: Path, seed: str) -> list[str]:
        return [*start, bootstrap, instance, str(at), seed]

    return command


def _librdkafka(at: Path) -> Client:
    return Client(_script("librdkafka_copier.py"))


def _aiokafka(at: Path) -> Client:
    return Client(_script("aiokafka_copier.py"))


def _java_client(at: Path) -> Client:
    return Client(_program("JavaCopier", _kafka_jars(), at))


def _franz(at: Path) -> Client:
    if not _FRANZ.exists():
        raise MissingError("franz-go's program is not here: `make kafka-tools`")

    def command(*arguments: object) -> list[str]:
        return [str(_FRANZ), *map(str, arguments)]

    return Client(command)


def _streams(at: Path) -> Client:
    class_path = f"{_kafka_jars()}{os.pathsep}{_directory('streams')}/*"
    return Client(_program("StreamsCopier", class_path, at))


def _connect(at: Path) -> Client:
    class_path = _compiled(CONNECTOR, _kafka_jars(), at)
    # Connect finds its plugins by this file.
    services = at / "classes" / "META-INF" / "services"
    services.mkdir(parents=True)
    interface = services / "org.apache.kafka.connect.source.SourceConnector"
    interface.write_text(CONNECTOR)
    return Client(connect_command(_java(class_path)), reads_files=True)


def _flink(at: Path) -> Client:
    # Flink's serializers use reflection on Java's collections.
    opened = ("--add-opens", "java.base/java.util=ALL-UNNAMED")
    return Client(
        _program("FlinkCopier", f"{_directory('flink')}/*", at, *opened), ("a",)
    )


# Each function takes a directory, and raises `MissingError` if its program cannot run.
CLIENTS: Final[dict[str, Callable[[Path], Client]]] = {
    "streams": _streams,
    "librdkafka": _librdkafka,
    "aiokafka": _aiokafka,
    "java": _java_client,
    "franz": _franz,
    "connect": _connect,
    "flink": _flink,
}
