"""The embedded coordinator keeps the contract, on one directory and on several."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from broker.coordination.coordinator import Coordinator
from broker.coordination.embedded import EmbeddedCoordinator
from broker.coordination.registry import Registry
from broker.disk.identity import draw_uuid
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import MemoryStorage
from tests.broker.coordination.contract_coordinator import CoordinatorContract


class TestEmbeddedInOneDirectory(CoordinatorContract):
    directories: Sequence[str] = ("/one",)

    @pytest.fixture(autouse=True)
    def _disk(self) -> None:
        self.storage = MemoryStorage()
        self.rng = random.Random(3)
        for directory in self.directories:
            self.storage.make_directory(directory)

    def make(self) -> Coordinator:
        return EmbeddedCoordinator(
            Registry(self.storage, LogDirs(self.directories)),
            broker_id=0,
            new_id=lambda: draw_uuid(self.rng),
        )

    def next_life(self) -> Coordinator:
        self.storage = self.storage.after_kill()
        return self.make()


class TestEmbeddedInThreeDirectories(TestEmbeddedInOneDirectory):
    directories = ("/one", "/two", "/three")

    def next_life(self) -> Coordinator:
        """Lose another directory's copy each time."""
        self.storage = self.storage.after_kill()
        lost = self.rng.choice(self.directories)
        self.storage.remove(f"{lost}/doorkeeper-cluster.json")
        return self.make()
