r"""Regular expressions of clients, in the syntax of RE2, as in Kafka.

RE2 needs time linear in the text for every expression, and `_MEMORY_MAX` bounds the
factor: an expression that is too large is rejected. Kafka's re2j differs slightly: it
rejects ``\C`` and repeated names, and accepts nested repetitions above 1,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.protocol.errors import ErrorCode, KafkaError

# Largest size of a compiled expression, in bytes.
_MEMORY_MAX: Final = 1 << 20


def full_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches whole texts; raise INVALID_REGULAR_EXPRESSION."""
    # Imported on demand, as most brokers never need it.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = f"the regular expression is not valid: {error}"
        raise KafkaError(ErrorCode.invalid_regular_expression, reason) from None
    return lambda text: compiled.fullmatch(text) is not None
