"""Compression levels of codecs on topics that recompress batches."""

import pytest

from tests.broker.log.witness import NOW_MS, batch, decoded, everything, open_log


@pytest.mark.parametrize(
    ("codec", "quick", "thorough", "usual"),
    [("gzip", 1, 9, -1), ("lz4", 9, 12, 9), ("zstd", -5, 19, 3)],
)
def test_a_codecs_level_decides_how_hard_it_tries(codec, quick, thorough, usual):
    text = b"".join(b"%d of %d, " % (n * n % 977, n) for n in range(5_000))
    sizes = {}
    for level in (None, usual, quick, thorough):
        settings = {f"compression_{codec}_level": level} if level is not None else {}
        log = open_log(compression_type=codec, **settings)
        log.append(batch([text]), 0, NOW_MS)
        stored = everything(log)
        assert [record[3] for record in decoded(stored)] == [text]
        sizes[level] = len(stored)
    assert sizes[thorough] < sizes[quick]
    assert sizes[None] == sizes[usual]
