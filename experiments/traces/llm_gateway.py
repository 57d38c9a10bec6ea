"""Requests of an LLM gateway: Azure's published traces, with measured service times.

    python -m experiments.traces.llm_gateway CODE.csv CONVERSATION.csv OUT.parquet

Arrivals and token counts are those of the Azure LLM inference trace 2023, files
``AzureLLMInferenceTrace_code.csv`` and ``..._conv.csv`` of
https://github.com/Azure/AzurePublicDataset (CC BY 4.0; Patel et al., "Splitwise:
Efficient generative LLM inference using phase splitting", ISCA 2024). The trace
begins with the later of the two services and ends with the earlier.

The service time of a request is its prompt time plus its generated tokens times the
time per token, on a replica that serves one request at a time. Both times are medians
of the authors' measurements of Llama2-70B on eight H100 without batching
(https://github.com/Mutinifni/splitwise-sim, ``data/perf_model.csv``, commit 8f99e7d,
rows with ``batch_size`` 1 and ``tensor_parallel`` 8). Prompts between the measured
lengths are interpolated.

Two properties are not published. The data set has no tenants: each request has one of
`TENANTS`, drawn by Zipf's law with exponent 1. It also has no batch class. Requests of
the code service, which answers while a programmer types, are ``interactive``;
conversations, whose answers are eight times as long, are ``batch``.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TENANTS: Final = 8
SEED: Final = 2311
# Prompt length in tokens: milliseconds to the first token.
PROMPT_MS: Final = {
    128: 58.2,
    256: 51.7,
    512: 53.9,
    1024: 77.9,
    2048: 136.8,
    4096: 390.3,
    8192: 844.9,
}
TOKEN_MS: Final = 30.4


class TokenRow(NamedTuple):
    """One request of the published trace."""

    at: datetime
    request_class: str
    prompt_tokens: int
    generated_tokens: int


def rows_of(path: Path, request_class: str) -> Iterator[TokenRow]:
    """Yield the requests of a published file."""
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            # Seven decimals are published; a datetime has six.
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            prompt, generated = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            yield TokenRow(at, request_class, prompt, generated)


def service_ms(prompt_tokens: int, generated_tokens: int) -> float:
    """Return the service time of a request on a replica of its own."""
    prompt_ms = np.interp(prompt_tokens, list(PROMPT_MS), list(PROMPT_MS.values()))
    return float(prompt_ms) + TOKEN_MS * max(0, generated_tokens - 1)


def write(code: Path, conversation: Path, out: Path) -> None:
    """Write the trace."""
    both = [list(rows_of(code, "interactive")), list(rows_of(conversation, "batch"))]
    begin = max(rows[0].at for rows in both)
    end = min(rows[-1].at for rows in both)
    rng = random.Random(SEED)
    tenants = [f"t{number}" for number in range(1, TENANTS + 1)]
    weights = [1 / rank for rank in range(1, TENANTS + 1)]
    rows = [row for row in sorted(both[0] + both[1]) if begin <= row.at <= end]
    table = pa.table(
        {
            "arrival_s": [round((row.at - begin).total_seconds(), 3) for row in rows],
            "class": [row.request_class for row in rows],
            "flow": rng.choices(tenants, weights, k=len(rows)),
            "service_us": [
                round(service_ms(row.prompt_tokens, row.generated_tokens) * 1e3)
                for row in rows
            ],
        }
    )
    names = ["class", "flow"]
    pq.write_table(
        table, out, compression="zstd", compression_level=19, use_dictionary=names
    )


if __name__ == "__main__":
    source_code, source_conversation, target = map(Path, sys.argv[1:])
    write(source_code, source_conversation, target)
