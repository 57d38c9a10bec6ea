"""The settings of the model world: its servers, their overheads, its distortions.

The live world measures these values or cannot choose them. An arm may have its own
values (``[arms.model]``), so one experiment can compare granularities,
misclassification or the parts of KIP-291.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from experiments.design.values import Mean, Rate, Section

Fraction: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Portion: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Server: TypeAlias = Literal["cpu", "seats", "threads"]
Cpus: TypeAlias = Annotated[int, Field(ge=1)]
Part: TypeAlias = Literal["reader", "queue", "worker"]


class ModelSection(Section):
    """The model of a broker.

    ``server`` is one of:

    - ``cpu``: one CPU that all planes share, like a broker on Trio;
    - ``seats``: each of ``num.io.threads`` is a server, like Kafka's threads on as many
      cores;
    - ``threads``: like Kafka's threads on fewer cores. A kernel shares ``cpus`` among
      them in turns of ``slice_us``, and lets a waking thread preempt if ``wakes``.

    Under ``cpu`` and ``seats`` a policy can preempt a handler every ``granularity_us``
    of its service (0: anywhere). Under ``threads`` no policy preempts, and the kernel
    does anywhere. ``preemption_us`` and ``switch_us`` are lost at each preemption and
    at each start of another request (under ``threads``: of another thread).
    ``service_us`` is the cost of requests whose traffic entry states none,
    ``refusal_us`` the cost of a rejection.

    Policies receive an expected cost: the broker's learned one (``estimate`` =
    ``learned``) or the true one, times ``estimate_bias`` and a lognormal error of
    ``estimate_sigma``; and the true size too if ``sizes_known``. ``misclassified`` is
    the share of other requests classified as control.

    Of each class, the share ``lock_shares`` takes one lock when served, and holds it
    for the first ``lock_us`` of its service (for all of it, if that is less). It is a
    lock between handlers; ``doorkeeper.lock.inheritance`` decides whether its holder
    inherits the rank of a waiter.
    """

    server: Server = "cpu"
    cpus: Cpus = 1
    slice_us: Mean = 3000.0
    wakes: bool = True
    granularity_us: Rate = 0.0
    preemption_us: Rate = 0.0
    switch_us: Rate = 0.0
    service_us: Mean = 100.0
    refusal_us: Rate = 10.0
    estimate: Literal["learned", "true"] = "learned"
    estimate_bias: Mean = 1.0
    estimate_sigma: Rate = 0.0
    sizes_known: bool = False
    misclassified: Fraction = 0.0
    lock_us: Rate = 0.0
    lock_shares: dict[str, Portion] = Field(default_factory=dict)


class ModelArm(Section):
    """An arm's own settings in the model world.

    ``own`` are the parts of KIP-291 that are reserved for control requests; the arm's
    scheduler orders the shared parts. An own *reader* is a processor for the control
    connections. An own *queue* holds 20 requests, and shared workers take from it
    first. An own *worker* is one of ``num.io.threads`` and serves only control, while
    the others serve the rest, so the number of workers does not change. Queue and
    worker together are a plane.
    """

    own: tuple[Part, ...] = ()
    server: Server | None = None
    cpus: Cpus | None = None
    slice_us: Mean | None = None
    wakes: bool | None = None
    granularity_us: Rate | None = None
    preemption_us: Rate | None = None
    switch_us: Rate | None = None
    estimate_bias: Mean | None = None
    estimate_sigma: Rate | None = None
    misclassified: Fraction | None = None
    lock_us: Rate | None = None

    def settings(self, shared: ModelSection) -> ModelSection:
        """Return the experiment's settings, overridden by this arm's values."""
        own = self.model_dump(exclude={"own"}, exclude_none=True)
        return shared.changed(**own)


def misfit(settings: ModelSection, scheduler: str) -> str:
    """Return the reason that an arm's settings exclude each other, or ""."""
    if settings.server != "threads":
        return ""
    if settings.granularity_us:
        return "threads are preempted anywhere, so granularity_us has to be 0"
    if settings.lock_us:
        return "threads know no lock, so lock_us has to be 0"
    if scheduler == "planes-lending":
        return "a thread serves one plane, so planes cannot lend each other seats"
    return ""
