"""kio without hypothesis: the broker's start is not a test's.

Where hypothesis is installed, as in a developer's environment, kio imports it to
register test strategies, and a broker would start by importing a test library. Here kio
is imported once as if hypothesis were absent, unless something (the tests) has already
loaded it. Both stay importable as usual afterwards.
"""

import importlib
import sys
from types import ModuleType
from typing import cast

if "hypothesis" not in sys.modules:
    # None in sys.modules makes the import fail, which kio takes for an absence.
    sys.modules["hypothesis"] = cast(ModuleType, None)
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]
