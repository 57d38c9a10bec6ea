"""Apache Kafka's programs in the versions that `make kafka-tools` has downloaded.

A program is a Java class in the jars of one version; Kafka's shell scripts only start
it. Java starts more slowly than most programs run. Where a Java compiler is installed,
one process per version therefore runs all programs (``ToolServer.java``), otherwise one
process each. Java's compiler is limited to its first tier and its heap is small: short
programs do not benefit from more.
"""

from __future__ import annotations

import struct
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pytest

from experiments.worlds.kafka.apache_kafka import (
    VERSIONS,
    NoKafka,
    class_of,
    jars,
    java,
)

__all__ = ["NEWEST", "VERSIONS", "KafkaPrograms", "Ran", "need_kafka"]

NEWEST = VERSIONS[-1]

_LOG4J = Path(__file__).with_name("log4j.properties")
_SERVER = Path(__file__).with_name("ToolServer.java")
_SERVER_ACCESS = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Exit status and output of a tool."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Return the lines of the output, stripped and without empty ones."""
        return [line.strip() for line in self.out.splitlines() if line.strip()]

    @property
    def table(self) -> list[dict[str, str]]:
        """Return the rows of a printed table as dictionaries; cells have no spaces."""
        lines = [line.split() for line in self.lines]
        heads = [at for at, words in enumerate(lines) if all(map(_is_head, words))]
        assert heads, self
        head = heads[0]
        width = len(lines[head])
        rows = [words for words in lines[head + 1 :] if len(words) == width]
        return [dict(zip(lines[head], row, strict=True)) for row in rows]


def _is_head(word: str) -> bool:
    return word.strip("#()-").replace("-", "").isupper()


class ToolServer:
    """A Java process that runs programs one after another."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._requests = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)

    def run(
        self, program: str, arguments: Iterable[str], stdin: str, seconds: float
    ) -> Ran:
        """Run a program; after the time limit the whole process is killed."""
        arguments = list(arguments)
        watch = threading.Timer(seconds, self._process.kill)
        watch.start()
        try:
            self._requests.write(_text(program) + _text(stdin))
            self._requests.write(struct.pack(">i", len(arguments)))
            self._requests.write(b"".join(map(_text, arguments)))
            self._requests.flush()
            status = self._number()
            out, err = (self._read(self._number()).decode() for _ in range(2))
        finally:
            watch.cancel()
        return Ran(status=status, out=out, err=err)

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        self._process.wait(timeout=20)
        self._answers.close()

    def _number(self) -> int:
        (number,) = struct.unpack(">i", self._read(4))
        return cast(int, number)

    def _read(self, size: int) -> bytes:
        found = self._answers.read(size)
        assert len(found) == size, "the program has ended Java, or took too long"
        return found


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def need_kafka(version: str) -> None:
    """Skip the test if this version of Kafka, or Java, is not installed."""
    try:
        jars(version)
        java()
    except NoKafka as none:
        pytest.skip(str(none))


class KafkaPrograms:
    """Programs of one version; `close` ends the process that runs them."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._server: ToolServer | None = None
        need_kafka(version)
        self._jars = jars(version)
        self._java = java()

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line to run a program in its own process."""
        return [*self._java_with_jars(), class_of(program, self.version), *arguments]

    def run(
        self, program: str, *arguments: str, stdin: str = "", seconds: float = 120
    ) -> Ran:
        """Run a program to its end."""
        if self._java.with_name("javac").exists():
            if self._server is None:
                self._server = ToolServer(
                    [*self._java_with_jars(), *_SERVER_ACCESS, str(_SERVER)]
                )
            try:
                return self._server.run(
                    class_of(program, self.version), arguments, stdin, seconds
                )
            except (AssertionError, OSError):
                # The process is unusable for later programs.
                self.close()
                raise
        done = subprocess.run(
            self.command(program, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return Ran(status=done.returncode, out=done.stdout, err=done.stderr)

    def succeed(self, program: str, *arguments: str, stdin: str = "") -> Ran:
        """Run a program that must end with status 0."""
        ran = self.run(program, *arguments, stdin=stdin)
        assert ran.status == 0, (program, arguments, ran)
        return ran

    def close(self) -> None:
        """End the Java process if it runs."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _java_with_jars(self) -> list[str]:
        return [
            str(self._java),
            *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Xshare:auto", f"-Dlog4j.configuration={_LOG4J.as_uri()}"),
            *("-cp", f"{self._jars}/*"),
        ]
