"""Findings of a run: a file for each new kind of failure, with its command."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from tests.fuzzing.known import Broken, causes, is_known, place


def _kind(error: BaseException) -> tuple[str, ...]:
    """Return the kind of a failure: the place that raised it, and the API."""
    api = str(error).partition(" v")[0] if isinstance(error, Broken) else ""
    return (*place(error), *re.findall(r"^[A-Z_]+$", api))


class Findings:
    """A directory that keeps the first of each kind of failure."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def note(self, error: BaseException, again: str, data: bytes | None = None) -> bool:
        """Write a failure to a file; return True if it is new and not a known fault.

        ``again`` is the command that reproduces it; ``data`` is the case, if it is
        bytes.
        """
        if is_known(error):
            return False
        places = ["-".join(_kind(each)).replace(":", "-") for each in causes(error)]
        path = self.directory / f"{'+'.join(dict.fromkeys(places))[:150]}.txt"
        if path.exists():
            return False
        if data is not None:
            path.with_suffix(".case").write_bytes(data)
            again = again.format(path.with_suffix(".case"))
        trace = "".join(traceback.format_exception(error))
        path.write_text(f"see it again: {again}\n\n{trace}")
        return True

    def told(self) -> list[str]:
        """Return the names of the findings, libFuzzer's own files included."""
        kinds = ("*.txt", "timeout-*", "oom-*", "crash-*", "slow-*")
        return sorted(path.name for kind in kinds for path in self.directory.glob(kind))
