"""Keys of admission: which requests enter a full queue, and which are rejected.

The value of ``doorkeeper.admission`` selects the keys in use; the others are checked
and unused. The rules are explained in ``planes/admission/``.
"""

from __future__ import annotations

from typing import Final

from broker.config.doorkeeper_keys import REQUEST_CLASSES, by_class
from broker.protocol.config_key import integer, pairs, text, words

ADMISSIONS: Final = (
    "block",
    "reserve",
    "exempt",
    "token-bucket",
    "codel",
    "deadline",
)
# The default of request.timeout.ms, after which Kafka's clients give up.
_PATIENCE_MS: Final = 30_000


DOORKEEPER_ADMISSION: Final = text(
    "doorkeeper.admission",
    "block",
    "Rule of a full queue: block (Kafka), reserve slots for the favoured classes, or "
    "exempt those classes from the bound. Rules at a request's first turn, "
    "bounded as block is: token-bucket throttles, codel and deadline reject.",
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
        "Burst of a class that token-bucket admits, as class:requests; default: the "
        "requests of one second.",
        low=1,
    )
)
DOORKEEPER_ADMISSION_TARGET_MS: Final = integer(
    "doorkeeper.admission.target.ms",
    5,
    "Longest wait of a request under codel while the queue does not drain.",
    low=1,
)
DOORKEEPER_ADMISSION_INTERVAL_MS: Final = integer(
    "doorkeeper.admission.interval.ms",
    100,
    "Longest wait under codel otherwise, and longest time that the queue may stand.",
    low=1,
)
DOORKEEPER_ADMISSION_DEADLINE_MS: Final = by_class(
    pairs(
        "doorkeeper.admission.deadline.ms",
        dict.fromkeys(REQUEST_CLASSES, _PATIENCE_MS),
        "Time limit of a response under deadline, as class:ms; other classes have no "
        "limit except a Produce's own.",
        low=1,
    )
)
