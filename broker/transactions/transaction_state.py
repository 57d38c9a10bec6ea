"""The states of a transactional id, and the moves between them.

Kafka: ``TransactionState``. The numbers are those in the records of
``__transaction_state``, the names those of DescribeTransactions.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


class TransactionState(enum.Enum):
    """States by their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Return Kafka's name.

        >>> TransactionState.PREPARE_EPOCH_FENCE.label
        'PrepareEpochFence'
        """
        return self.name.title().replace("_", "")


_S = TransactionState
# States without an open transaction: the id may expire, or begin a transaction.
COMPLETE: Final = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {_S.EMPTY}
# States with a decided outcome, whose markers are in progress.
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
BEFORE: Final[Mapping[TransactionState, frozenset[TransactionState]]] = (
    MappingProxyType(
        {
            _S.EMPTY: IDLE,
            _S.ONGOING: IDLE | {_S.ONGOING},
            _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
            # From an idle state with transaction.version 2 only.
            _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
            _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
            _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
            _S.DEAD: IDLE,
            _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
        }
    )
)
BY_LABEL: Final[Mapping[str, TransactionState]] = MappingProxyType(
    {state.label: state for state in TransactionState}
)
