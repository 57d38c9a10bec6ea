"""Figures drawn from ``results.json``."""

import os

# matplotlib fails to import under an unknown backend, and figures need only this one.
os.environ["MPLBACKEND"] = "agg"
