"""Mute states of a connection, as in Kafka's ``KafkaChannel``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class MuteState(IntEnum):
    """Reasons not to read a connection (``KafkaChannel.ChannelMuteState``)."""

    NOT_MUTED = 0
    MUTED = 1
    MUTED_AND_RESPONSE_PENDING = 2
    MUTED_AND_THROTTLED = 3
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = 4

    # The hash of an enum is a Python function, and every request would call it twice.
    __hash__ = int.__hash__


class MuteEvent(IntEnum):
    """Events that change the state (``KafkaChannel.ChannelMuteEvent``)."""

    REQUEST_RECEIVED = 0
    RESPONSE_SENT = 1
    THROTTLE_STARTED = 2
    THROTTLE_ENDED = 3

    __hash__ = int.__hash__


_MUTED = MuteState.MUTED
_PENDING = MuteState.MUTED_AND_RESPONSE_PENDING
_THROTTLED = MuteState.MUTED_AND_THROTTLED
_BOTH = MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING

TRANSITIONS: Final[Mapping[tuple[MuteState, MuteEvent], MuteState]] = MappingProxyType(
    {
        (_MUTED, MuteEvent.REQUEST_RECEIVED): _PENDING,
        (_PENDING, MuteEvent.RESPONSE_SENT): _MUTED,
        (_PENDING, MuteEvent.THROTTLE_STARTED): _BOTH,
        (_BOTH, MuteEvent.RESPONSE_SENT): _THROTTLED,
        (_BOTH, MuteEvent.THROTTLE_ENDED): _PENDING,
        (_THROTTLED, MuteEvent.THROTTLE_ENDED): _MUTED,
    }
)
