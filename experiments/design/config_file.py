"""A config file and the trace that it names, read and checked."""

from __future__ import annotations

import tomllib
from pathlib import Path

from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError
from experiments.design.trace_windows import with_trace


def load(path: Path) -> Experiment:
    """Read an experiment from a TOML file, and the trace that it names.

    :raises ExperimentError: if it is no TOML, or any key or value is invalid.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(str(path), f"no TOML: {error}") from error
    return with_trace(parse(content), path)
