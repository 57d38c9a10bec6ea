"""Run directories on this machine, or on any file system that Spark reads.

A plain path and a ``file:`` URI name a directory of this machine, whose manifest is
read before Spark starts. Below any other URI (``s3a:``, ``hdfs:``) Spark reads the
manifest as a binary file, so with Spark Connect only its server needs access.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.recordings.load import escaped
from spark_analysis.recordings.manifest import MANIFEST, load_manifest, parse_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URI: Final = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)
_ABSENT: Final = "PATH_NOT_FOUND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordings:
    """The manifests of a run, or of several worlds of one experiment.

    ``alone`` is True for a run directory, False for a directory of worlds. ``silent``
    gives the reason for each world that cannot be compared.
    """

    manifests: list[Manifest]
    alone: bool
    silent: dict[str, str] = field(default_factory=dict)


def local_directory(name: str) -> Path | None:
    """Return the path of a directory on this machine, None for another file system."""
    scheme = _URI.match(name)
    if scheme is None:
        return Path(name)
    if scheme[1].lower() == "file":
        return Path(unquote(re.sub("^file:/*", "/", name, flags=re.IGNORECASE)))
    return None


def recordings_here(directory: Path) -> Recordings:
    """Return the manifest of a run, or those of a directory of worlds.

    A world that cannot be compared does not prevent the report on the others.

    :raises RecordingError: if no world can be compared.
    """
    folders = sorted(path.parent for path in directory.glob(f"*/{MANIFEST}"))
    if (directory / MANIFEST).exists() or not folders:
        return Recordings(manifests=[load_manifest(directory)], alone=True)
    found, silent = [], {}
    for folder in folders:
        try:
            found.append(load_manifest(folder))
        except RecordingError as error:
            silent[folder.name] = str(error)
    return _of_worlds(str(directory), found, silent)


def recordings_at(spark: SparkSession, uri: str) -> Recordings:
    """Return the recordings of a directory that only Spark can read.

    :raises RecordingError: if no world can be compared.
    """
    uri = uri.rstrip("/")
    for content in _manifests(spark, f"{escaped(uri)}/{MANIFEST}").values():
        manifest = parse_manifest(content, _name(uri), uri)
        return Recordings(manifests=[manifest], alone=True)
    found, silent = [], {}
    for path, content in sorted(
        _manifests(spark, f"{escaped(uri)}/*/{MANIFEST}").items()
    ):
        folder = PurePosixPath(path).parent.name
        location = f"{uri}/{folder}"
        try:
            found.append(parse_manifest(content, _name(location), location))
        except RecordingError as error:
            silent[folder] = str(error)
    if not (found or silent):
        raise RecordingError(f"{uri}/{MANIFEST}: there is no such file; is this a run?")
    return _of_worlds(uri, found, silent)


def _of_worlds(
    directory: str, found: list[Manifest], silent: dict[str, str]
) -> Recordings:
    if not found:
        raise RecordingError("; ".join(silent.values()))
    twice = [name for name, n in Counter(m.world for m in found).items() if n > 1]
    if twice:
        raise RecordingError(f"{directory}: two runs of the {twice[0]} world")
    return Recordings(manifests=found, alone=False, silent=silent)


def _name(uri: str) -> Path:
    """Return the part of a URI that names a directory, for reports."""
    return Path(uri.partition(":")[2])


def _manifests(spark: SparkSession, pattern: str) -> dict[str, bytes]:
    """Return the contents of the files that match a pattern, by path."""
    try:
        frame = spark.read.format("binaryFile").load(pattern)
        rows = frame.select("path", "content").toArrow().to_pylist()
    except Exception as error:
        if _ABSENT in str(error):
            return {}
        raise
    return {row["path"]: bytes(row["content"]) for row in rows}
