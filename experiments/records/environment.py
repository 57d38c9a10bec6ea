"""The machine and the code that a result depends on, for the manifest.

All facts are read from the system when the experiment starts. Missing facts are
"unknown" or null, never guessed. The code's hash is over the packages' sources, so it
is correct in a modified checkout and in an installed wheel without a commit.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

# Packages that a run executes. The analysis is not among them, and may change between
# runs.
CODE_PACKAGES = ("schedulers", "planes", "broker", "simulation", "experiments")
_LIBRARIES = ("trio", "kio", "numpy", "pyarrow", "sortedcontainers", "crc32c")
_ROOT = Path(__file__).resolve().parents[2]


def memory_bytes() -> int:
    """Return the size of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def environment() -> dict[str, Any]:
    """Return a description of the machine."""
    return {
        "cpu_model": _proc_value(Path("/proc/cpuinfo"), "model name"),
        "cores": os.cpu_count(),
        "governor": _text(
            Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        ),
        "memory_bytes": memory_bytes(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _LIBRARIES},
    }


def code() -> dict[str, Any]:
    """Return the commit, whether the checkout differs from it, and a hash."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", *CODE_PACKAGES)
    return {
        "commit": commit or "unknown",
        "dirty": None if commit is None else bool(changes),
        "sha256": code_sha256(),
    }


@functools.cache
def code_sha256() -> str:
    """Return the hash of the sources that a run executes; computed once per process.

    It is equal wherever they were imported from: a checkout, a wheel, or an archive
    sent to this machine.
    """
    digest = hashlib.sha256()
    root: Traversable = zipfile.Path(_ROOT) if _ROOT.is_file() else _ROOT
    for package in CODE_PACKAGES:
        for name, source in sorted(_sources(root / package, package)):
            digest.update(name.encode() + b"\0" + source + b"\0")
    return digest.hexdigest()


def _sources(directory: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of every source file below a directory."""
    for entry in directory.iterdir():
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, path)
        elif path.endswith(".py"):
            yield path, entry.read_bytes()


def now() -> str:
    """Return the wall-clock time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(*arguments: str) -> str | None:
    """Return git's output, or None without git or a repository."""
    command = ["git", "-C", str(_ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def _proc_value(path: Path, key: str) -> str:
    """Return the first ``key : value`` of a file of /proc."""
    for line in (_text(path) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"
