"""Requests in a workload: a section for every API that has a shape.

The API gives the tag (``api = "list-offsets"``) and the request's class. Its shape
(`experiments.design.request_shapes`) gives the keys, with defaults and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Self,
    TypeAlias,
    get_type_hints,
)

from pydantic import Field, create_model, model_validator

from broker.apis.common.api import Api
from broker.handling.api_registry import APIS
from broker.requests.classifier import CONTROL
from experiments.design.request_shapes import SHAPES, RequestShape
from experiments.design.values import Section


def _tag(api: Api) -> str:
    return api.key.name.lower().replace("_", "-")


LOADS: Final[Mapping[str, Api]] = MappingProxyType(
    {_tag(APIS[key]): APIS[key] for key in sorted(SHAPES)}
)


class Request(Section):
    """One request of a traffic entry: its API, and that API's parameters."""

    api: str

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.shape()
        return self

    @property
    def declared(self) -> Api:
        """The broker's declaration of the API."""
        return LOADS[self.api]

    @property
    def sent_class(self) -> str:
        """The class that the broker assigns: its API's, unless its shape has one."""
        return self.shape().request_class or self.declared.request_class

    @property
    def is_controllers(self) -> bool:
        """Whether a controller sends it, to the control plane if there is one."""
        return self.declared.request_class == CONTROL

    def __reduce__(self) -> tuple[Callable[..., Request], tuple[str, dict[str, Any]]]:
        """Pickle by the tag, because the class is not an attribute of any module."""
        return _again, (self.api, self.model_dump())

    def shape(self) -> RequestShape:
        """Return the load that these parameters describe."""
        load = SHAPES[self.declared.key]
        return load(**{each.name: getattr(self, each.name) for each in fields(load)})


def _section(tag: str, load: type[RequestShape]) -> type[Request]:
    types = get_type_hints(load)
    keys: dict[str, Any] = {"api": (Literal[tag], ...)}
    keys |= {
        each.name: (types[each.name], Field(each.default, **each.metadata))
        for each in fields(load)
    }
    name = "".join(word.capitalize() for word in tag.split("-"))
    return create_model(name, __base__=Request, __doc__=load.__doc__, **keys)


_SECTIONS: Final = {tag: _section(tag, SHAPES[api.key]) for tag, api in LOADS.items()}


def _again(tag: str, content: dict[str, Any]) -> Request:
    return _SECTIONS[tag].model_validate(content)


if TYPE_CHECKING:
    AnyRequest: TypeAlias = Request
else:
    AnyRequest = Annotated[reduce(or_, _SECTIONS.values()), Field(discriminator="api")]
