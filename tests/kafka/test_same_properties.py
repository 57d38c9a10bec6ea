"""Properties files: our parser compared with java.util.Properties."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from broker.config import parse_properties
from broker.protocol.errors import ConfigError
from spark_analysis.recordings.java import NoJava, java_home

pytestmark = pytest.mark.kafka

SEED: Final = 30
TEXTS: Final = 40_000
READER: Final = Path(__file__).with_name("PropertiesReader.java")
# Parts with a meaning in the format, and characters that only look like them.
PIECES: Final = (
    *("a", "b", "key", "1", "=", ":", "==", " ", "\t", "\f", " = ", "#", "!"),
    *("\\", "\\\\", "\\\\\\", "\n", "\r", "\r\n", "\\\n", "\\\r\n", "\\\r", "\n\n"),
    *("\\n", "\\t", "\\r", "\\f", "\\q", "\\=", "\\:", "\\ ", "\\#", "\\u"),
    *("\\u0041", "\\u00e4", "\\u00E4", "\\u0020", "\\u003d", "\\uD83D\\uDE00"),
    *("\\ud83d", "\\ude00", "\\u004", "\\u00g1", "\\u0x1F", "\\u+041", "\\u1_23"),
    *("\\uuuu0041", "\\u 041", "\\u\uff11\uff12\uff13\uff14", "ä", "\U0001f600"),
    *("\x0b", "\x1c", "\x85", "\u2028", "\xa0", "\x00", "\ufeff"),
)
SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

Found = dict[str, str] | None


def test_every_text_reads_as_java_reads_it() -> None:
    rng = random.Random(SEED)
    texts = ["".join(rng.choices(PIECES, k=rng.randrange(1, 14))) for _ in range(TEXTS)]
    refused = 0
    for text, theirs in zip(texts, by_java(texts), strict=True):
        ours = by_us(text)
        if theirs is not None and ours is None:
            # Java keeps half of a surrogate pair, which cannot be encoded.
            refused += 1
            assert SURROGATE.search(text), (SEED, text)
            continue
        for found in (ours, theirs):
            # Java reads a last line of "\\" as an empty key, but not "\\\r\n".
            if found is not None:
                found.pop("", None)
        assert ours == theirs, (SEED, text)
    assert 0 < refused < TEXTS / 10


def by_us(text: str) -> Found:
    try:
        return parse_properties(text)
    except ConfigError:
        return None


def by_java(texts: list[str]) -> list[Found]:
    try:
        java = java_home(os.environ) / "bin" / "java"
    except NoJava as none:
        pytest.skip(str(none))
    if not java.with_name("javac").exists():
        pytest.skip("Java without a compiler")
    encoded = [text.encode() for text in texts]
    sent = b"".join(struct.pack(">i", len(each)) + each for each in encoded)
    done = subprocess.run(
        [str(java), str(READER)],
        input=struct.pack(">i", len(texts)) + sent,
        capture_output=True,
        timeout=120,
        check=True,
    )
    answer = BytesIO(done.stdout)
    return [one(answer) for _ in texts]


def one(answer: BytesIO) -> Found:
    count = number(answer)
    if count < 0:
        return None
    return {text_of(answer): text_of(answer) for _ in range(count)}


def number(answer: BytesIO) -> int:
    (found,) = struct.unpack(">i", answer.read(4))
    assert isinstance(found, int)
    return found


def text_of(answer: BytesIO) -> str:
    return answer.read(number(answer)).decode("utf-16-be", "surrogatepass")
