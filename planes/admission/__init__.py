"""Who may enter a plane's queue, and who is served that has waited in it.

``admission`` is the contract, ``applicant`` what a rule may see of a task; each other
file is one rule. ``block``, ``reserve`` and
``exempt`` decide who finds room and serve whoever has: a full queue makes its reader
wait. ``token_bucket``, ``codel`` and ``deadline`` bound the queue as ``block`` does,
and decide when a request's turn has come: to serve it, to serve it and hold its
connection back, or to turn it away. Whoever is turned away is answered all the same.
"""

from planes.admission.admission import (
    EXPIRED,
    HOPELESS,
    OVER_QUOTA,
    THROTTLED,
    Admission,
)
from planes.admission.applicant import Applicant
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
    "Applicant",
    "Block",
    "CoDel",
    "Deadline",
    "Exempt",
    "Reserve",
    "TokenBucket",
]
