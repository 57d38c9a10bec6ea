"""Theory as an oracle: predictions of queueing theory for a scheduler.

``mg1``, ``sizes``, ``mmc`` and ``shares`` are closed forms, and share no code with the
code that they judge. ``system`` reads the queueing system of an arm from an experiment,
``predict`` selects the form that applies, or the reason that none does, ``measure``
computes the predicted quantities from recorded rows, and ``compare`` compares both.
"""

from experiments.theory.mg1 import MG1, Unstable, exponential_segments
from experiments.theory.mmc import MMc, erlang_c
from experiments.theory.shares import share_by_weight, share_of_priority
from experiments.theory.sizes import Sizes

__all__ = [
    "MG1",
    "MMc",
    "Sizes",
    "Unstable",
    "erlang_c",
    "exponential_segments",
    "share_by_weight",
    "share_of_priority",
]
