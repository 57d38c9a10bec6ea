"""``python -m doorkeeper.testing.host_process``: the other end of a `ProcessLink`.

Standard input carries pickled settings, then pickled calls; standard output carries
pickled results. The end of the input ends the brokers.
"""

from __future__ import annotations

import os
import pickle
import sys

from doorkeeper.testing.links import ThreadLink


def main() -> None:
    """Serve calls until the input ends."""
    calls = sys.stdin.buffer
    results = os.fdopen(os.dup(1), "wb")
    # Text printed by the broker goes to standard error, away from the results.
    os.dup2(2, 1)

    def put(is_result: bool, found: object) -> None:
        try:
            pickled = pickle.dumps((is_result, found))
        except Exception as error:
            pickled = pickle.dumps((False, RuntimeError(f"{found!r}: {error!r}")))
        results.write(pickled)
        results.flush()

    try:
        link = ThreadLink(pickle.load(calls))
    except Exception as error:
        put(False, error)
        return
    put(True, None)
    while True:
        try:
            method, args, kwargs = pickle.load(calls)
        except EOFError:
            break
        try:
            found = link.call(method, *args, **kwargs)
        except Exception as error:
            put(False, error)
        else:
            put(True, found)
    link.close()


if __name__ == "__main__":
    main()
