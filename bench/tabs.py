"""Open tabs of a console: pages that a browser reads again every ten seconds.

``python -m bench.tabs ADDRESS PAGE...`` reads until it is stopped. In a process of its
own it takes no time of the load's. A page that the cluster has not answered in time is
read again in the next round, as by a browser; any other error ends it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

# As of the console's own link.
REFRESH_S = 10.0
_TIMEOUT_S = 30.0
_NOT_IN_TIME = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)


def read_s(address: str, page: str) -> float:
    """Return the time until a whole page is there; raise `OSError` if it is none."""
    began_s = time.perf_counter()
    with urlopen(f"{address}clusters/0/{page}", timeout=_TIMEOUT_S) as answer:
        answer.read()
    return time.perf_counter() - began_s


def watch(address: str, pages: Sequence[str]) -> None:
    """Read all pages every `REFRESH_S`, without end."""
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
