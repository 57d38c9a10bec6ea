"""Sequential work in this process, for worlds that measure the machine."""

from __future__ import annotations

from collections.abc import Generator

from experiments.running.executor import Todo
from experiments.running.trials import Outcome
from experiments.running.unit_runner import UnitRunner
from experiments.worlds.world import World


class Sequential:
    """Runs work in the given world, in the order of the plan."""

    name = "sequential"
    lanes: int | None = 1

    def __init__(self, world: World) -> None:
        self._runner = UnitRunner(world)

    def outcomes(self, todo: Todo) -> Generator[tuple[Outcome, ...], None, None]:
        """Run work, see `Executor`; exceptions of the world propagate."""
        while (work := todo.next()) is not None:
            yield self._runner.run(work, todo.started)
