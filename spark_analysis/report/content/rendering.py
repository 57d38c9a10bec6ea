"""Jinja2 templates of the report, and the functions that render them."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from spark_analysis.report.content import numbers


@cache
def environment(*, escaped: bool) -> Environment:
    """Return the templates' environment; ``escaped`` for HTML."""
    found = Environment(
        loader=PackageLoader("spark_analysis.report", "templates"),
        autoescape=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters.update(
        digits=numbers.digits,
        ratio=numbers.ratio,
        p_value=numbers.p_value,
        listed=numbers.listed,
    )
    return found


@cache
def _sentences() -> Any:
    """Return the macros of ``sentences.j2`` as a module of plain text."""
    return environment(escaped=False).get_template("sentences.j2").module


def sentence(name: str, **values: object) -> str:
    """Return a sentence of ``sentences.j2``, with collapsed white space."""
    return " ".join(str(getattr(_sentences(), name)(**values)).split(" ")).strip()


def page(name: str, **values: object) -> str:
    """Return a rendered HTML template."""
    return environment(escaped=True).get_template(name).render(values)
