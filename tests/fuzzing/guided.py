"""`make fuzz`: cases steered by coverage (libFuzzer through atheris).

The corpus that it starts from is one text file, a case per line; what a run adds stays
in its own directory, and ``--keep`` writes some of it back into the file.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus.txt")
_KEPT_CASES, _KEPT_BYTES = 100, 600
# A case takes milliseconds; one that takes this long is a finding.
_FREEZE_S = 30
_MEMORY_MB = 2048
# The status that says: there is nothing here to steer cases with.
_LEFT_OUT = 3


def corpus() -> list[bytes]:
    """Return the cases that a run starts from."""
    return [bytes.fromhex(line) for line in CORPUS.read_text().split()]


def main() -> None:
    """Fuzz, or play single cases again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", type=Path, help="cases to play again")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--keep", action="store_true", help="renew the corpus")
    chosen = parser.parse_args()
    if chosen.cases:
        from tests.fuzzing.cases import play

        for path in chosen.cases:
            play(path.read_bytes())
        return
    if importlib.util.find_spec("atheris") is None:
        print(
            "guided: left out, for atheris is not installed here "
            "(pip install '.[fuzz]', where there is a wheel for this Python)",
            file=sys.stderr,
        )
        sys.exit(_LEFT_OUT)
    found = _fuzz(chosen.out, chosen.minutes, chosen.seed)
    if chosen.keep:
        _keep(chosen.out)
    print(f"guided, seed {chosen.seed}, {chosen.minutes} min: {len(found)} findings")
    for name in found:
        print(f"  {chosen.out / 'findings' / name}")
    sys.exit(bool(found))


def _fuzz(out: Path, minutes: float, seed: int) -> list[str]:
    from tests.fuzzing.findings import Findings

    findings = Findings(out / "findings")
    grown = out / "corpus"
    grown.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(corpus()):
        (grown / f"kept-{number:03}").write_bytes(case)
    options = {
        "max_total_time": max(round(minutes * 60), 1),
        "seed": seed,
        "max_len": 4096,
        "len_control": 0,
        "timeout": _FREEZE_S,
        "rss_limit_mb": _MEMORY_MB,
        "artifact_prefix": f"{findings.directory}/",
        "print_final_stats": 1,
    }
    status = _child(out, [grown], options)
    told = findings.told()
    if status and not told:
        sys.exit(f"guided: the fuzzer ended with {status}: {out / 'log.txt'}")
    return told


def _keep(out: Path) -> None:
    """Write down some of what covered anything new, from all over the run."""
    grown = sorted((out / "corpus").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    cases = [path.read_bytes() for path in grown]
    short = list(dict.fromkeys(case for case in cases if 0 < len(case) <= _KEPT_BYTES))
    step = max(len(short) / _KEPT_CASES, 1)
    kept = [short[int(at * step)] for at in range(min(_KEPT_CASES, len(short)))]
    CORPUS.write_text("".join(f"{case.hex()}\n" for case in kept))


def _child(out: Path, directories: list[Path], options: dict[str, object]) -> int:
    """Run libFuzzer in a process of its own: it ends the one that it runs in."""
    written = [f"-{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.fuzzing.fuzzer", str(out / "findings")]
    with (out / "log.txt").open("ab") as log:
        ended = subprocess.run([*command, *map(str, directories), *written], stderr=log)
    return ended.returncode


if __name__ == "__main__":
    logging.disable()
    main()
