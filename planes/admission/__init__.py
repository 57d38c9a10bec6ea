"""Admission rules: which requests may enter a plane's queue, and which are served.

``admission`` is the contract, ``admission_job`` a task as rules see it; each
other file is one rule. ``block``, ``reserve`` and ``exempt`` limit entry, and serve
every request that entered: a full queue makes its reader wait. ``token_bucket``,
``codel`` and ``deadline`` bound the queue as ``block`` does. At a request's first turn
they serve it, serve it and throttle its connection, or reject it. A rejected request
receives a response as well.
"""

from planes.admission.admission import (
    EXPIRED,
    HOPELESS,
    OVER_QUOTA,
    THROTTLED,
    Admission,
)
from planes.admission.admission_job import AdmissionJob
from planes.admission.block import Block
from planes.admission.codel import CoDel
from planes.admission.deadline import Deadline
from planes.admission.exempt import Exempt
from planes.admission.reserve import Reserve
from planes.admission.token_bucket import TokenBucket

__all__ = [
    "EXPIRED",
    "HOPELESS",
    "OVER_QUOTA",
    "THROTTLED",
    "Admission",
    "AdmissionJob",
    "Block",
    "CoDel",
    "Deadline",
    "Exempt",
    "Reserve",
    "TokenBucket",
]
