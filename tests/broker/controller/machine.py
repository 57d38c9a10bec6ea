"""A controller under arbitrary events, conflicts and crashes between two decisions.

`World` checks each decision. This machine draws events, and checks the state once no
request is in flight: every live broker has the newest state. Once all brokers are
back, all partitions have leaders, and deletions and reassignments are complete.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
)

from broker.controller.elections import ElectionType
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition
from tests.broker.controller.world import World

BROKERS = 4
TOPICS = ("a", "b")
BROKER = st.integers(1, BROKERS)
TOPIC = st.sampled_from(TOPICS)
REPLICAS = st.lists(BROKER, min_size=1, max_size=3, unique=True).map(tuple)
NUMBER = st.integers(0, 100)


class ControllerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World(BROKERS)
        for number in range(1, BROKERS + 1):
            self.world.start_broker(number)
        self.world.elect_controller()
        self.world.create_topic("a", (1, 2), (2, 3, 4))

    def key(self, number: int) -> TopicPartition:
        """Return an existing partition, or one of an unknown topic if there is none."""
        topics = self.world.znodes.topics
        keys = [
            TopicPartition(name, it)
            for name in topics
            for it in topics[name].partitions
        ]
        return sorted(keys)[number % len(keys)] if keys else TopicPartition("c", 0)

    # ---- brokers ----------------------------------------------------------------

    @rule(number=BROKER)
    def start_or_stop(self, number):
        if number in self.world.znodes.brokers:
            self.world.stop_broker(number)
        else:
            self.world.start_broker(number)
        self.world.notice_brokers()

    @rule(number=BROKER, other=BROKER)
    def several_at_once(self, number, other):
        """Restart ``number`` and start or stop ``other``, as one change of brokers."""
        self.world.start_broker(number)
        if other in self.world.znodes.brokers:
            self.world.stop_broker(other)
        else:
            self.world.start_broker(other)
        self.world.notice_brokers()

    @rule(number=BROKER)
    def shut_down(self, number):
        registered = self.world.znodes.brokers.get(number)
        if registered is not None:
            core = self.world.core
            remaining = self.world.run(
                core.controlled_shutdown(number, registered.epoch)
            )
            for key in remaining or ():
                assert self.world.znodes.states[key].leader == number

    @rule(number=BROKER)
    def lose_directory(self, number):
        broker = self.world.brokers[number]
        if number in self.world.znodes.brokers and broker.replicas:
            broker.lose_directory(min(broker.replicas))
            self.world.run(self.world.core.log_dirs_changed([number]))

    @rule(number=BROKER)
    def find_room(self, number):
        broker = self.world.brokers[number]
        if number in self.world.znodes.brokers and broker.bad_dirs:
            broker.find_room(min(broker.bad_dirs))
            self.world.run(self.world.core.log_dirs_changed([number]))

    # ---- the controller ---------------------------------------------------------

    @rule()
    def next_controller(self):
        self.world.elect_controller()

    @rule(decisions=st.integers(0, 8))
    def doom_controller(self, decisions):
        self.world.decisions_left = decisions

    @rule(number=NUMBER)
    def write_an_isr_in_between(self, number):
        """Write an ISR before the controller does, as leaders of old releases do."""

        def shrink(decision):
            states = self.world.znodes.states
            known = sorted(key for key in decision.wanted if key in states)
            if known:
                key = known[number % len(known)]
                before = states[key]
                isr = tuple(it for it in before.isr if it == before.leader)
                states[key] = before.with_isr(
                    before.controller_epoch, isr or before.isr, before.recovery_state
                )
                self.world.isr_notifications.add(key)

        self.world.meddle = shrink

    @rule()
    def hear_of_isrs(self):
        self.world.notice_isrs()

    # ---- topics -----------------------------------------------------------------

    @rule(name=TOPIC, assignment=st.lists(REPLICAS, min_size=1, max_size=2))
    def create(self, name, assignment):
        if name not in self.world.znodes.topics:
            self.world.create_topic(name, *assignment)

    @rule(name=TOPIC, replicas=REPLICAS)
    def add_partition(self, name, replicas):
        if name in self.world.znodes.topics:
            self.world.add_partition(name, replicas)

    @rule(name=TOPIC)
    def notice_partitions(self, name):
        self.world.notice_partitions(name)

    @rule(name=TOPIC)
    def delete(self, name):
        self.world.delete_topic(name)

    @rule(name=TOPIC)
    def allow_unclean_elections(self, name):
        self.world.unclean.add(name)
        self.world.run(self.world.core.unclean_election_enabled(name))

    # ---- operators --------------------------------------------------------------

    @rule(number=NUMBER, wanted=st.none() | REPLICAS)
    def reassign(self, number, wanted):
        core = self.world.core
        self.world.run(core.alter_partition_reassignments({self.key(number): wanted}))

    @rule(number=NUMBER, wanted=REPLICAS, decisions=st.integers(0, 12))
    def die_reassigning(self, number, wanted, decisions):
        self.world.decisions_left = decisions
        self.reassign(number, wanted)

    @rule(number=NUMBER, wanted=REPLICAS)
    def reassign_in_znode(self, number, wanted):
        targets = {self.key(number): wanted}
        self.world.znodes.reassignments = targets
        self.world.run(self.world.core.reassignments_in_znode(targets))

    @rule(number=NUMBER)
    def elect_preferred(self, number):
        core = self.world.core
        self.world.run(core.elect_leaders([self.key(number)], ElectionType.PREFERRED))

    @rule(number=NUMBER)
    def elect_unclean(self, number):
        self.world.unclean_now = True
        core = self.world.core
        self.world.run(core.elect_leaders([self.key(number)], ElectionType.UNCLEAN))
        self.world.unclean_now = False

    @rule()
    def rebalance(self):
        self.world.run(self.world.core.auto_rebalance())

    # ---- requests and ISR proposals ---------------------------------------------

    @rule(number=BROKER)
    def deliver(self, number):
        if self.world.channels.get(number):
            self.world.deliver(number)

    @rule(number=BROKER)
    def deliver_and_answer_late(self, number):
        if self.world.channels.get(number):
            self.world.deliver(number, answer_late=True)

    @rule()
    def hear_late_answers(self):
        self.world.hear_late_answers()

    @rule(number=NUMBER, others=st.frozensets(BROKER))
    def propose(self, number, others):
        led = list(self.world.led())
        if led:
            broker, key, state = led[number % len(led)]
            isr = tuple(it for it in state.replicas if it == broker.id or it in others)
            self.world.propose(broker, key, isr)

    # ---- final state ------------------------------------------------------------

    @rule()
    def everybody_knows_the_newest(self):
        self.world.settle()
        check_replicas(self.world)
        check_metadata(self.world)

    @rule()
    def all_comes_to_its_end(self):
        world = self.world
        world.meddle = world.decisions_left = None
        for number in range(1, BROKERS + 1):
            world.start_broker(number)
        world.notice_brokers()
        for name in list(world.znodes.topics):
            world.notice_partitions(name)
        world.settle()
        catch_up(world)
        check_replicas(world)
        check_metadata(world)
        znodes = world.znodes
        assert znodes.deletions == set()
        assert set(znodes.reassignments) == set()
        for name, topic in znodes.topics.items():
            for index, assignment in topic.partitions.items():
                state = znodes.states[TopicPartition(name, index)]
                assert state.leader != NO_LEADER
                assert not assignment.is_being_reassigned
                assert set(state.isr) == set(assignment.replicas)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.all_comes_to_its_end()


def catch_up(world: World) -> None:
    """Propose full ISRs as the leaders, so that reassignments complete."""
    for _ in range(10):
        behind = [
            (broker, key, state)
            for broker, key, state in world.led()
            if set(state.isr) != set(state.replicas)
        ]
        if not behind:
            return
        for broker, key, state in behind:
            if broker.replicas.get(key) is state:
                world.propose(broker, key, state.replicas)
                world.settle()
    raise AssertionError(f"never done: {behind}")


def check_replicas(world: World) -> None:
    """Check that every replica on a live broker has the newest leadership."""
    context = world.core.context
    for number, offline in context.offline_dirs.items():
        assert offline <= world.brokers[number].bad_dirs
    for key, state in world.znodes.states.items():
        if key.topic in world.znodes.deletions:
            continue
        for number in world.znodes.replicas(key).replicas:
            if context.is_online(number, key):
                mine = world.brokers[number].replicas[key]
                assert (mine.leader, mine.leader_epoch) == (
                    state.leader,
                    state.leader_epoch,
                ), (key, number)
                # The order of replicas is relevant to the controller only.
                assert set(mine.replicas) == set(world.znodes.replicas(key).replicas)


def check_metadata(world: World) -> None:
    """Check that every live broker has the newest metadata of every partition."""
    newest = {
        key: (state.leader, state.leader_epoch, state.isr, state.version)
        for key, state in world.znodes.states.items()
        if key.topic not in world.znodes.deletions
    }
    for number in world.znodes.brokers:
        broker = world.brokers[number]
        assert broker.alive == set(world.znodes.brokers)
        told = {
            key: (it.leader, it.leader_epoch, it.isr, it.zk_version)
            for key, it in broker.metadata.items()
            # A deletion may be delayed; no metadata is sent before it begins.
            if key.topic not in world.znodes.deletions
        }
        different = told.items() ^ newest.items()
        assert not different, (number, different)
