"""Figures drawn from ``results.json``."""

import os

# matplotlib cannot be imported under an unknown backend, and figures need no other.
os.environ["MPLBACKEND"] = "agg"
