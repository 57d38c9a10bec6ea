"""The process that libFuzzer runs in: our packages instrumented, a case per call.

Started by `tests.fuzzing.guided`: the findings' directory, then libFuzzer's own
arguments. A failure is written down and the run goes on.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

AGAIN = "python -m tests.fuzzing.guided {}"


def main() -> None:
    """Hand over to libFuzzer, which ends the process."""
    # Not at the top: only `make fuzz` has atheris, and tests import every module here.
    import atheris

    with atheris.instrument_imports(include=["broker", "planes", "schedulers"]):
        from tests.fuzzing.cases import play
    from tests.fuzzing.findings import Findings

    findings = Findings(Path(sys.argv[1]))

    def one(data: bytes) -> None:
        try:
            play(data)
        except Exception as error:
            findings.note(error, AGAIN, data)

    logging.disable()
    atheris.Setup([sys.argv[0], *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
