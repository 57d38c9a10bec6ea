"""Open tabs of a console: pages that a browser reloads every ten seconds.

``python -m bench.tabs ADDRESS PAGE...`` reloads them until it is stopped. As a separate
process it takes no time from the load's client. A page that the cluster has not
answered in time is read again in the next round, as by a browser; any other error ends
the run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

# The interval of the console's own reload link.
REFRESH_S = 10.0
_TIMEOUT_S = 30.0
_NOT_IN_TIME = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)


def read_s(address: str, page: str) -> float:
    """Return the time to read a whole page; raise `OSError` if there is none."""
    began_s = time.perf_counter()
    with urlopen(f"{address}clusters/0/{page}", timeout=_TIMEOUT_S) as answer:
        answer.read()
    return time.perf_counter() - began_s


def watch(address: str, pages: Sequence[str]) -> None:
    """Read all pages every `REFRESH_S`, until the process is stopped."""
    due_s = time.monotonic()
    while True:
        for page in pages:
            try:
                read_s(address, page)
            except HTTPError as error:
                if error.code not in _NOT_IN_TIME:
                    raise
        due_s += REFRESH_S
        time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2:])
