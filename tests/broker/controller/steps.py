"""Steps that many tests of the controller share."""

from broker.protocol.topic_partition import TopicPartition

KEY = TopicPartition("t", 0)


def stop(world, *numbers):
    """Stop brokers, and notify the controller once."""
    for number in numbers:
        world.stop_broker(number)
    world.notice_brokers()


def start(world, *numbers):
    """Start brokers, and notify the controller once."""
    for number in numbers:
        world.start_broker(number)
    world.notice_brokers()


def join_isr(world, *isr):
    """Propose an ISR as the leader of `KEY`, from its last LeaderAndIsr state."""
    world.settle()
    broker = next(broker for broker, key, _ in world.led() if key == KEY)
    return world.propose(broker, KEY, isr)


def reassign(world, target, key=KEY, **options):
    """Request a reassignment, or its cancellation (None); return the refusal."""
    asked = world.core.alter_partition_reassignments({key: target}, **options)
    return world.run(asked)[key]
