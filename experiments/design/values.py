"""What the tables of an experiment's file are made of: strict, with checked values."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
Rate: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Band: TypeAlias = Annotated[float, Field(gt=1, allow_inf_nan=False)]
Mean: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of the file: immutable, and strict about its keys and types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
