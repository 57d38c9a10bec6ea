"""The bases of all messages."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Final,
    Generic,
    Protocol,
    TypeVar,
    dataclass_transform,
)

from broker.protocol.api_keys import ApiKey

# typeshed's SimpleNamespace accepts any attribute, which would hide a misspelt field.
if TYPE_CHECKING:
    _Fields = object
else:
    _Fields = SimpleNamespace

NO_TIME: Final = timedelta(0)


@dataclass_transform(kw_only_default=True)
class Message(_Fields):
    """A struct of named fields; a default is an attribute of the class.

    A dataclass for the type checker only. For two hundred classes, `dataclasses` would
    add a fifth of a second to the start of a broker.
    """


class AnyResponse(Protocol):
    """A response that a client receives."""

    @property
    def throttle_time(self) -> timedelta:
        """Time for which the client must wait (KIP-219)."""


R_co = TypeVar("R_co", bound=AnyResponse, covariant=True)


class AnyRequest(Generic[R_co]):
    """A request that a client sends; its response is an ``R_co``."""

    __slots__ = ()

    api_key: ClassVar[ApiKey]


class ResponseMessage(Message):
    """A whole response; versions without a throttle time omit it."""

    throttle_time: timedelta = NO_TIME


class RequestMessage(Message, AnyRequest[R_co]):
    """A whole request."""


def defaults_of(message: type[Message]) -> dict[str, object]:
    """Return the defaults by field, for fields with a default."""
    return {
        name: value
        for base in message.__mro__
        for name, value in vars(base).items()
        if name in vars(base).get("__annotations__", ())
    }
