"""The libFuzzer process: our packages are instrumented, and each call plays a case.

`tests.fuzzing.guided` starts it with the findings' directory and libFuzzer's own
arguments. A failure is written to a file, and the run continues.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

AGAIN = "python -m tests.fuzzing.guided {}"


def main() -> None:
    """Hand over to libFuzzer, which ends the process."""
    # Not at module level: only `make fuzz` has atheris, and tests import every module
    # here.
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
