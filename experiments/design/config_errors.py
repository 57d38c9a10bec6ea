"""Faults in an experiment's file, described by paths in the file.

Pydantic reports a location as a tuple that contains the tags of unions. Operators know
the path in the TOML, such as ``workload.traffic[0].arrivals.rate_per_s``.
"""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_SCALARS = ("str", "int", "float", "bool")


class ExperimentError(ValueError):
    """An operator's fault in an experiment: its path in the file, and the fault."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(f"{path}: {fault}")
        self.path = path
        self.fault = fault


def first_error(error: ValidationError, model: type[BaseModel]) -> ExperimentError:
    """Convert pydantic's first error into an `ExperimentError`."""
    errors = error.errors(include_url=False)
    # A mistyped key also makes one missing: report the key that is in the file.
    details = min(errors, key=lambda each: each["type"] != "extra_forbidden")
    path, table = _follow(details["loc"], model)
    return ExperimentError(path or "the file", _fault(details, table))


def differences(before: object, now: object, path: str = "") -> list[str]:
    """Return each key whose value differs, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            each
            for key in dict.fromkeys((*before, *now))
            if key != "machine"
            for each in differences(
                before.get(key), now.get(key), f"{path}.{key}" if path else str(key)
            )
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [
            each
            for number, pair in enumerate(zip(before, now, strict=True))
            for each in differences(*pair, f"{path}[{number}]")
        ]
    return [] if before == now else [f"{path}: {before!r} recorded, {now!r} now"]


def _fault(details: ErrorDetails, table: type[BaseModel] | None) -> str:
    """Return the found and the expected value as a sentence."""
    kind = details["type"]
    if kind == "extra_forbidden":
        known = _keys(table)
        close = difflib.get_close_matches(str(details["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"unknown key; {hint}known here: {', '.join(known)}"
    if kind == "missing":
        return "this key is missing"
    if kind == "value_error":
        return details["msg"].removeprefix("Value error, ")
    if kind == "union_tag_not_found":
        return f"needs the key {details['ctx']['discriminator']}"
    if kind == "union_tag_invalid":
        context = details["ctx"]
        return (
            f"{context['discriminator']} = {context['tag']!r} is none of "
            f"{context['expected_tags']}"
        )
    expected = details["msg"].removeprefix("Input should be ")
    return f"found {details['input']!r}, expected {expected}"


def _follow(
    location: tuple[int | str, ...], model: type[BaseModel]
) -> tuple[str, type[BaseModel] | None]:
    """Return a location as a path, with the table of its last key."""
    path = ""
    table: type[BaseModel] | None = model
    choices: list[type[BaseModel]] = [model]
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        tagged = [
            choice for choice in choices if len(choices) > 1 and part in _tags(choice)
        ]
        if tagged:
            choices = tagged
            continue
        if table is None and part in _SCALARS:
            continue
        path += f".{part}" if path else part
        table = choices[0] if len(choices) == 1 else None
        choices = _tables_of(table, part)
    return path, table


def _tables_of(table: type[BaseModel] | None, key: str) -> list[type[BaseModel]]:
    """Return the models that a key's value may have."""
    for name, field in table.model_fields.items() if table else ():
        if key == (field.alias or name):
            return list(_models_in(field.annotation))
    return []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return every model in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _tags(model: type[BaseModel]) -> set[str]:
    """Return the values of the key that distinguishes a model from its alternatives."""
    return {
        str(value)
        for name in ("kind", "api", "design")
        if name in model.model_fields
        for value in get_args(model.model_fields[name].annotation)
    }


def _keys(model: type[BaseModel] | None) -> list[str]:
    """Return the keys of a table as they are in the file."""
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]
