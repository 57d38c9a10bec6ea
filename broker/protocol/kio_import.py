"""Imports kio without hypothesis, so that a broker's start loads no test library.

Where hypothesis is installed, as in a developer's environment, kio imports it to
register test strategies. Here kio is imported once as if hypothesis were absent, unless
something (the tests) has already loaded it. Both stay importable as usual afterwards.
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
