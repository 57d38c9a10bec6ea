"""Connections and processors of the model: muting, blocking and admission order."""

import pytest

from experiments.worlds.model.engine import Engine
from experiments.worlds.model.own_queue import OwnQueue
from experiments.worlds.model.readers import Connection, Processor, Readers
from experiments.worlds.model.site import Overheads, Site
from experiments.worlds.model.task import ModelTask
from planes import Block, PlaneCore
from planes.admission import Exempt
from schedulers import SchedulerConfig, make

MS = 1_000_000


class Front:
    """A plane behind processors; requests are ``(ms, connection, level, need_ms)``."""

    def __init__(
        self, dealt, requests, *, capacity=0, class_aware=False, admission=None
    ):
        self.plane = PlaneCore(
            "data",
            make("priority", SchedulerConfig()),
            admission or Block(capacity=capacity),
            seats=1,
        )
        self.engine = Engine([Site([self.plane], Overheads())], quantum_ns=MS)
        self.processors = [Processor() for _ in range(max(dealt) + 1)]
        self.answered = []
        self.readers = Readers(
            self.engine,
            self.make_tasks(requests),
            connections=[Connection(self.processors[number]) for number in dealt],
            route=lambda task: self.plane,
            done=self.answered.append,
            class_aware=class_aware,
        )

    def make_tasks(self, requests):
        for number, (at_ms, connection, level, need_ms) in enumerate(requests):
            yield ModelTask(
                number,
                round(at_ms * MS),
                round(need_ms * MS),
                level=level,
                request_class="control" if level == 0 else "data",
                connection=connection,
            )

    def run(self):
        self.engine.run(self.readers)
        self.plane.check()
        return self

    def answers_ms(self):
        return {task.number: task.response_sent_ns / MS for task in self.answered}


def test_a_connection_has_one_request_in_the_broker_at_a_time():
    """The second request waits in its socket; one of another connection passes it."""
    requests = [(0, 0, 4, 10), (1, 0, 4, 10), (2, 1, 4, 10)]
    front = Front([0, 0], requests, capacity=10).run()
    assert front.answers_ms() == {0: 10, 2: 20, 1: 30}
    (second,) = [task for task in front.answered if task.number == 1]
    assert (second.received_ns, second.enqueued_ns) == (10 * MS, 10 * MS)


def test_a_blind_processor_that_is_blocked_reads_no_connection():
    """Scenario S1: the controller's request is not read while the queue is full."""
    requests = [(0, 0, 4, 10), (0, 1, 4, 10), (0, 2, 4, 10), (1, 3, 0, 1)]
    front = Front([0] * 4, requests, capacity=1).run()
    (control,) = [task for task in front.answered if task.level == 0]
    assert control.received_ns == 10 * MS
    assert front.answers_ms()[3] > 10


def test_another_processor_reads_on():
    requests = [(0, 0, 4, 10), (0, 1, 4, 10), (0, 2, 4, 10), (1, 3, 0, 1)]
    exempt = Exempt(capacity=1, favoured=frozenset({"control"}))
    front = Front([0, 0, 0, 1], requests, admission=exempt).run()
    (control,) = [task for task in front.answered if task.level == 0]
    assert control.received_ns == 1 * MS
    assert front.answers_ms()[3] == 2


def test_a_class_aware_processor_puts_requests_aside_and_reads_on():
    requests = [(0, 0, 4, 10), (0, 1, 4, 10), (0, 2, 4, 10), (1, 3, 0, 1)]
    exempt = Exempt(capacity=1, favoured=frozenset({"control"}))
    front = Front([0] * 4, requests, admission=exempt, class_aware=True)
    front.run()
    assert front.answers_ms() == {3: 2, 0: 11, 1: 21, 2: 31}


def test_of_those_put_aside_the_most_urgent_is_let_in_first():
    requests = [(0, 0, 4, 10), (0, 1, 4, 10), (0, 2, 5, 1), (0, 3, 3, 1)]
    front = Front([0] * 4, requests, capacity=1, class_aware=True).run()
    assert front.answers_ms() == {0: 10, 3: 11, 1: 21, 2: 22}


def test_a_blocked_processor_sends_no_responses():
    """One thread reads and sends, as in Kafka: a full queue also delays responses."""
    requests = [(0, 0, 4, 10), (1, 1, 4, 10), (2, 2, 4, 10)]
    front = Front([0, 0, 0], requests, capacity=1)
    front.engine.at(5 * MS, lambda now_ns: blocked_at_5.append(front.processors[0]))
    blocked_at_5 = []
    front.run()
    (processor,) = blocked_at_5
    assert processor.blocked_ns == 8 * MS
    answered = {task.number: task for task in front.answered}
    # The third request is admitted at 10 ms, when the first has been served.
    assert answered[0].remote_done_ns == answered[0].response_sent_ns == 10 * MS


@pytest.mark.parametrize("class_aware", [False, True])
@pytest.mark.parametrize("capacity", [1, 3, 100])
def test_everything_is_answered_in_the_order_of_its_connection(capacity, class_aware):
    requests = [
        (number * 0.7, number * 7 % 11, number % 5, 1 + number % 3)
        for number in range(300)
    ]
    front = Front([0, 1] * 6, requests, capacity=capacity, class_aware=class_aware)
    front.run()
    assert sorted(front.answers_ms()) == list(range(300))
    for connection in range(11):
        those = [it.number for it in front.answered if it.connection == connection]
        assert those == sorted(those)
    for processor in front.processors:
        assert processor.blocked is None
        assert not processor.ready
        assert not processor.responses


def test_a_processor_with_room_is_let_in_past_one_without():
    """Bounds per class: `Dispatcher.put` admits from blind readers likewise."""
    bounds = OwnQueue(capacity=1, own_capacity=1, owners=frozenset({"control"}))
    requests = [
        # A control request in service until 10 ms, then one queued of each class: both
        # queues are full.
        (0, 0, 0, 10),
        (1, 1, 1, 10),
        (2, 2, 0, 1),
        # Two processors block: the first with data, the second with control.
        (3, 3, 1, 10),
        (4, 4, 0, 1),
    ]
    front = Front([0, 1, 2, 3, 4], requests, admission=bounds)
    answers_ms = front.run().answers_ms()
    # At 10 ms the first control request is taken, and the second enters its queue,
    # although the data queue is still full. Both are served before any data (10 + 1 +
    # 1).
    assert (answers_ms[2], answers_ms[4]) == (11, 12)
    assert (answers_ms[1], answers_ms[3]) == (22, 32)
    assert front.processors[4].blocked_ns == 6 * MS


def test_an_own_queue_is_full_by_itself():
    bounds = OwnQueue(capacity=5, own_capacity=1, owners=frozenset({"control"}))
    plane = PlaneCore("data", make("np-priority", SchedulerConfig()), bounds, seats=1)
    first, second, data = (
        ModelTask(number, 0, MS, level=level, request_class=name)
        for number, (level, name) in enumerate(
            [(0, "control"), (0, "control"), (1, "data")]
        )
    )
    assert plane.offer(first, 0)
    assert not plane.offer(second, 0)
    assert plane.offer(data, 0)
    assert plane.pick(0) is first
    assert plane.offer(second, 0)
