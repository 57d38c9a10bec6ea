"""What happens in the tests of the controller again and again."""

from broker.protocol.topic_partition import TopicPartition

KEY = TopicPartition("t", 0)


def stop(world, *numbers):
    """Have brokers die, and the controller notice all of it at once."""
    for number in numbers:
        world.stop_broker(number)
    world.notice_brokers()


def start(world, *numbers):
    """Have brokers come, and the controller notice all of it at once."""
    for number in numbers:
        world.start_broker(number)
    world.notice_brokers()


def join_isr(world, *isr):
    """Have the leader of `KEY` propose an ISR, by what it has been told."""
    world.settle()
    broker = next(broker for broker, key, _ in world.led() if key == KEY)
    return world.propose(broker, KEY, isr)


def reassign(world, target, key=KEY):
    """Ask for a reassignment, or with None a cancellation; return the refusal."""
    return world.run(world.core.alter_partition_reassignments({key: target}))[key]
