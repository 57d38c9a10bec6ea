"""Equivalent mutants: changes without an observable effect, with reasons."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from tests.mutants.areas import AREAS
from tests.mutants.sampling import every_mutant

FILE: Final = Path(__file__).with_name("equivalents.toml")


def equivalents() -> dict[str, str]:
    """Return the reason for each equivalent mutant, by name."""
    with FILE.open("rb") as file:
        return dict(tomllib.load(file))


def outdated() -> list[str]:
    """Return listed names that no mutant has."""
    names = {each.name for area in AREAS for each in every_mutant(area)}
    return [name for name in equivalents() if name not in names]


if __name__ == "__main__":
    print("\n".join(outdated()))
