"""A process that has collected an area's tests and runs them for mutants."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.mutants.sampling import Mutant
from tests.mutants.serving import UNFIT


class Served:
    """A `serving` process, which lives until ``close``.

    ``command`` is pytest's, run in ``directory``, a copy of the tree.
    """

    def __init__(
        self, command: list[str], directory: Path, surroundings: Mapping[str, str]
    ) -> None:
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [*command, "-p", "tests.mutants.serving", f"--serve={its.fileno()}"],
                cwd=directory,
                env=surroundings,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
            )
        self._directory = directory
        self._socket = ours
        self._lines = ours.makefile("rw")
        if not self._lines.readline():
            raise SystemExit("the tests cannot be collected")

    def outcome(self, mutant: Mutant, limits_s: Mapping[str, float]) -> int | None:
        """Return the result of a child that ran these tests in this order.

        The result is an exit status, minus the number of a signal, or None if the
        mutant needs a new process. ``limits_s`` maps test names to limits in CPU
        seconds.
        """
        asked = {
            "path": str(self._directory / mutant.path),
            "source": mutant.source,
            "new": mutant.new(),
            "limits_s": limits_s,
        }
        print(json.dumps(asked), file=self._lines, flush=True)
        status = int(self._lines.readline())
        return None if status == UNFIT else status

    def close(self) -> None:
        """End the process."""
        self._lines.close()
        self._socket.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
