"""Mute states, compared with the table of Kafka's ``handleChannelMuteEvent``."""

import pytest

from broker.network.kafka_channel import KafkaChannel
from broker.network.mute import TRANSITIONS, MuteEvent, MuteState

S, E = MuteState, MuteEvent


def channel(state=S.NOT_MUTED):
    made = KafkaChannel(
        None,
        connection_id=1,
        host="127.0.0.1",
        listener="PLAINTEXT",
        frame_bytes_max=100,
        pool=None,
        now_ns=0,
    )
    made.mute_state = state
    return made


def test_a_request_and_its_answer():
    one = channel()
    one.mute()
    assert one.mute_state is S.MUTED_AND_RESPONSE_PENDING
    assert not one.maybe_unmute()
    one.handle(E.RESPONSE_SENT)
    assert one.maybe_unmute()
    assert one.mute_state is S.NOT_MUTED


@pytest.mark.parametrize("order", [0, 1])
def test_a_throttle_ends_before_or_after_the_answer_is_sent(order):
    one = channel()
    one.mute()
    one.handle(E.THROTTLE_STARTED)
    events = [E.RESPONSE_SENT, E.THROTTLE_ENDED]
    one.handle(events[order])
    assert not one.maybe_unmute()
    one.handle(events[1 - order])
    assert one.maybe_unmute()


LEGAL = {
    (S.MUTED, E.REQUEST_RECEIVED),
    (S.MUTED_AND_RESPONSE_PENDING, E.RESPONSE_SENT),
    (S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, E.RESPONSE_SENT),
    (S.MUTED_AND_RESPONSE_PENDING, E.THROTTLE_STARTED),
    (S.MUTED_AND_THROTTLED, E.THROTTLE_ENDED),
    (S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, E.THROTTLE_ENDED),
}


@pytest.mark.parametrize("event", E)
@pytest.mark.parametrize("state", S)
def test_only_kafkas_transitions_are_legal(state, event):
    assert ((state, event) in TRANSITIONS) == ((state, event) in LEGAL)
    if (state, event) not in LEGAL:
        with pytest.raises(AssertionError, match=event.name):
            channel(state).handle(event)


def test_a_muted_channel_is_not_muted_again():
    one = channel()
    one.mute()
    with pytest.raises(AssertionError):
        one.mute()
