"""Keys of admission: which requests enter a full queue, and which are rejected.

The value of ``doorkeeper.admission`` selects the keys in use; the others are checked
and unused. The rules are explained in ``planes/admission/``.
"""

from __future__ import annotations

from typing import Final

from broker.config.doorkeeper import REQUEST_CLASSES, by_class
from broker.protocol.config_key import integer, pairs, text, words

ADMISSIONS: Final = (
    "block",
    "reserve",
    "exempt",
    "token-bucket",
    "codel",
    "deadline",
)
# The default of Kafka's clients (request.timeout.ms): no client waits longer.
_PATIENCE_MS: Final = 30_000


DOORKEEPER_ADMISSION: Final = text(
    "doorkeeper.admission",
    "block",
    "What a full queue does: block (Kafka), reserve slots for the favoured classes, or "
    "exempt those classes from the bound; or, bounded as block is, who is held back or "
    "turned away when its turn comes: token-bucket, codel, deadline.",
    choices=ADMISSIONS,
)
DOORKEEPER_ADMISSION_RESERVED: Final = integer(
    "doorkeeper.admission.reserved",
    20,
    "Slots of the queue kept for the favoured classes under admission reserve.",
    low=1,
)
DOORKEEPER_ADMISSION_FAVOURED: Final = words(
    "doorkeeper.admission.favoured",
    ("control",),
    "Classes that reserve and exempt favour, and that codel and deadline never turn "
    "away.",
    choices=REQUEST_CLASSES,
)
DOORKEEPER_ADMISSION_RATES_PER_S: Final = by_class(
    pairs(
        "doorkeeper.admission.rates.per.s",
        {},
        "Requests per second and class under token-bucket, as class:rate; a class not "
        "named is not limited.",
        low=1,
    )
)
DOORKEEPER_ADMISSION_BURST_REQUESTS: Final = by_class(
    pairs(
        "doorkeeper.admission.burst.requests",
        {},
        "How many requests of a class token-bucket lets through at once, as "
        "class:requests; for a class not named, those of one second.",
        low=1,
    )
)
DOORKEEPER_ADMISSION_TARGET_MS: Final = integer(
    "doorkeeper.admission.target.ms",
    5,
    "How long a request may wait under codel while the queue does not drain.",
    low=1,
)
DOORKEEPER_ADMISSION_INTERVAL_MS: Final = integer(
    "doorkeeper.admission.interval.ms",
    100,
    "How long one may wait under codel otherwise, and how long the queue may stand.",
    low=1,
)
DOORKEEPER_ADMISSION_DEADLINE_MS: Final = by_class(
    pairs(
        "doorkeeper.admission.deadline.ms",
        dict.fromkeys(REQUEST_CLASSES, _PATIENCE_MS),
        "Within what time a request must be answered under deadline, as class:ms; a "
        "class not named has no limit but the one that a Produce comes with.",
        low=1,
    )
)
