"""The whole broker in virtual time, with handlers of a given cost.

Only the handlers, the network and the clock are replaced. Planes, dispatcher,
processors, request channels and topology are the broker's own. A PRODUCE takes
``PRODUCE_SLICES`` slices of ``SLICE_NS``, any other request one slice.
"""

import contextlib
import itertools
import struct
from dataclasses import dataclass, field

from broker.config import BrokerConfig
from broker.handling.api_registry import APIS
from broker.node.hosts import Hosts, look_up_here
from broker.quotas.address_rates import AddressRates
from planes.slices import preempt
from simulation.virtual_time.determinism import run_virtual
from tests.virtual.hosting import SLICE_NS, Frames, Hosting, frame

US, MS = 1_000, 1_000_000
PRODUCE_SLICES = 20
PRODUCE_NS = PRODUCE_SLICES * SLICE_NS

LEADER_AND_ISR, PRODUCE = (4, 1), (0, 8)

# Small sizes, so that S1 and S2 take milliseconds.
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "doorkeeper.controller.listeners": "PLAINTEXT,CONTROLLER",
    "num.network.threads": "1",
    "num.io.threads": "1",
    "queued.max.requests": "10",
}


class Handlers:
    """An application without a broker: each API takes a number of slices."""

    def __init__(self):
        self.listeners = ()
        self.apis = APIS
        self.config_listeners = []
        self.authorizer = None
        self.address_rates = AddressRates()
        self._hosts = Hosts(look_up_here)
        self.addresses = self._hosts.addresses
        self.closed = False

    async def prepare(self):
        """Do nothing: there is no controller."""

    async def withdraw(self):
        """Do nothing: there are no partitions to hand over."""

    async def leave(self):
        """Do nothing: there is no cluster to leave."""

    def authentication(self, listener):
        return None

    def in_force(self, config):
        self._hosts.resolve_now(config)
        return config

    def observe(self, observers):
        """Do nothing: no requests are counted."""

    def open(self, listeners, timer_moved, submit):
        self.listeners = listeners

    async def serve(self, request):
        if request.api_key == PRODUCE[0]:
            for _ in range(PRODUCE_SLICES - 1):
                await preempt()
        return (struct.pack(">ii", 4, request.correlation_id),)

    async def run(self, billed):
        """Do nothing: there are no background tasks."""

    def next_expiry_ns(self):
        return None

    def expire(self, now_ns):
        raise AssertionError("nothing waits")

    def next_upkeep_ns(self):
        return None

    def upkeep(self, now_ns):
        raise AssertionError("nothing is to be kept up")

    def info(self):
        return ()

    def metrics(self):
        return ()

    def close(self):
        self.closed = True


@dataclass
class Observer:
    """Replaces the file in which requests are recorded."""

    requests: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    closed: bool = False

    def record(self, request):
        self.requests.append(request)

    def sample(self, row):
        self.samples.append(row)

    def violations(self, counts):
        self.counts = counts

    def accounts(self, totals):
        """Do nothing: virtual time has no process CPU time."""
        assert totals == {}

    def flush(self):
        """Do nothing: nothing is buffered."""

    def close(self):
        self.closed = True


class World(Hosting):
    """A running broker, its network, and the recorded requests.

    ``application(config, clock, network)`` makes the application, `Handlers` by
    default. ``slices_ns`` maps classes to the cost of their slices; the default is
    ``SLICE_NS``.
    """

    def __init__(
        self,
        clock,
        settings,
        *,
        seed=1,
        latency_ns=(0, 0),
        application=None,
        slices_ns=None,
    ):
        super().__init__(clock, seed, latency_ns)
        self.observer = Observer()
        config = BrokerConfig.load(None, {**SETTINGS, **settings})
        self.application = (
            application(config, clock, self.network) if application else Handlers()
        )
        self.sent_ns = {}
        self.answered_ns = {}
        self._ids = itertools.count()
        self.server = self.add(
            config,
            self.application,
            seed=seed,
            slices_ns=slices_ns,
            recorder=self.observer,
        )

    @contextlib.asynccontextmanager
    async def running(self):
        async with self.serving():
            yield self

    @property
    def tasks(self):
        """The tasks of finished requests, by correlation id."""
        return {each.correlation_id: each.task for each in self.observer.requests}

    def connect(self, listener="PLAINTEXT"):
        return self.open(self.server.ports[listener])

    def control_listener(self):
        """The listener for controllers: the control plane's, if there is one."""
        return "CONTROLLER" if "CONTROLLER" in self.server.ports else "PLAINTEXT"

    async def ask(self, stream, api):
        """Send a request, wait for its response, return its id."""
        correlation_id = next(self._ids)
        self.sent_ns[correlation_id] = self.clock.now_ns()
        key, version = api
        await stream.send_all(
            frame(correlation_id=correlation_id, api_key=key, version=version)
        )
        content = await Frames(stream).next()
        assert content is not None, "the broker closed the connection"
        assert content == struct.pack(">i", correlation_id)
        self.answered_ns[correlation_id] = self.clock.now_ns()
        return correlation_id


def in_world(scenario, settings=None, *, seed=1, **options):
    """Run ``scenario(world)`` to its end in virtual time; return its result."""

    async def main(clock):
        world = World(clock, settings or {}, seed=seed, **options)
        async with world.running():
            return await scenario(world)

    return run_virtual(main, seed=seed)
