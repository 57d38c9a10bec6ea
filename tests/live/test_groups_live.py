"""Consumer groups of librdkafka across restarts and crashes of a broker process."""

from __future__ import annotations

import pytest

from tests.live.broker_process import BrokerProcess
from tests.live.group_members import (
    Join,
    committed,
    produce,
    sizes,
    wait_until,
)

pytestmark = pytest.mark.live


@pytest.mark.parametrize("crash", [False, True])
def test_committed_offsets_survive_a_restart(
    broker: BrokerProcess, topic: str, join: Join, crash: bool
) -> None:
    produce(broker, topic, range(120))
    member = join()
    wait_until(lambda: len(member.seen) == 120)
    wait_until(lambda: committed(broker, topic) == sizes(120))
    member.close()
    broker.kill() if crash else broker.stop()
    broker.start()
    assert committed(broker, topic) == sizes(120)
    produce(broker, topic, range(120, 180))
    again = join()
    wait_until(lambda: len(again.seen) == 60)
    assert sorted(again.seen) == list(range(120, 180))


def test_a_group_goes_on_over_a_restart_of_the_broker(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    members = [join(), join()]
    wait_until(lambda: {len(member.assigned) for member in members} == {3})
    produce(broker, topic, range(60))
    broker.stop()
    broker.start()
    produce(broker, topic, range(60, 120))
    wait_until(lambda: {*members[0].seen, *members[1].seen} == set(range(120)))
    wait_until(lambda: committed(broker, topic) == sizes(120))
