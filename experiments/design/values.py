"""Base and value types of the tables of an experiment's file: strict, checked."""

from __future__ import annotations

from typing import Annotated, Final, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from experiments.design.config_errors import first_error


def _no_trace(value: float) -> float:
    """Refuse nonzero values that are too small to distinguish from 0."""
    if 0 < value < _LEAST:
        raise ValueError(f"found {value}, expected 0 or at least {_LEAST}")
    return value


_LEAST: Final = 1e-9

Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
# These bounds keep every instant and duration within 64 bits of nanoseconds, and those
# of a run within the 53 bits that a float holds exactly.
Rate: TypeAlias = Annotated[
    float, Field(ge=0, le=1e12, allow_inf_nan=False), AfterValidator(_no_trace)
]
Seconds: TypeAlias = Annotated[float, Field(ge=1e-6, le=9e6, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000)]
Band: TypeAlias = Annotated[float, Field(gt=1, allow_inf_nan=False)]
Mean: TypeAlias = Annotated[float, Field(ge=1e-9, le=1e12, allow_inf_nan=False)]
# Mean cost of a request; large enough that the minimum draw of 1 ns does not matter.
MeanUs: TypeAlias = Annotated[float, Field(ge=1.0, le=1e7, allow_inf_nan=False)]
# Cost of one request.
CostUs: TypeAlias = Annotated[float, Field(ge=1e-3, le=1e7, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of the file: immutable, and strict about its keys and types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def changed(self, **values: object) -> Self:
        """Return the table with other values, which are checked like those of a file.

        :raises ExperimentError: naming the key of an invalid value.
        """
        kept = {
            field.alias or name: values.pop(name, getattr(self, name))
            for name, field in type(self).model_fields.items()
        }
        try:
            return type(self).model_validate({**kept, **values})
        except ValidationError as error:
            raise first_error(error, type(self)) from error
