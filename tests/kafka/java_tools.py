"""Apache Kafka's programs in the versions that `make kafka-tools` has fetched.

A program is a Java class in the jars of one version; the shell scripts that Kafka ships
with do no more than start it. Java's compiler is kept to its first tier and its heap
small: a tool that lives for a second has no use for more.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.apache_kafka import VERSIONS, NoKafka, class_of, jars
from spark_analysis.java import NoJava, java_home

__all__ = ["VERSIONS", "KafkaPrograms", "Ran"]

_LOG4J = Path(__file__).with_name("log4j.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a tool left behind."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed, without empty lines and spaces around."""
        return [line.strip() for line in self.out.splitlines() if line.strip()]

    @property
    def table(self) -> list[dict[str, str]]:
        """Rows of a printed table by the names in its head, which words cannot have."""
        lines = [line.split() for line in self.lines]
        heads = [at for at, words in enumerate(lines) if all(map(_is_head, words))]
        assert heads, self
        head = heads[0]
        width = len(lines[head])
        rows = [words for words in lines[head + 1 :] if len(words) == width]
        return [dict(zip(lines[head], row, strict=True)) for row in rows]


def _is_head(word: str) -> bool:
    return word.strip("#()-").replace("-", "").isupper()


class KafkaPrograms:
    """The programs of one version."""

    def __init__(self, version: str) -> None:
        self.version = version
        try:
            self._jars = jars(version)
            self._java = java_home(os.environ) / "bin" / "java"
        except NoKafka as none:
            pytest.skip(str(none))
        except NoJava as none:
            pytest.skip(f"Apache Kafka cannot run: {none}")

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line of a program."""
        known = class_of(program, self.version)
        return [
            *("nice", "-n", "10", str(self._java)),
            *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Xshare:auto", f"-Dlog4j.configuration={_LOG4J.as_uri()}"),
            *("-cp", f"{self._jars}/*", known, *arguments),
        ]

    def run(
        self, program: str, *arguments: str, stdin: str = "", seconds: float = 120
    ) -> Ran:
        """Run a program to its end."""
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
