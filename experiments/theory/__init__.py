"""Theory as an oracle: what queueing theory says a scheduler must do.

``mg1``, ``sizes``, ``mmc`` and ``shares`` are closed forms, and share no code with what
they judge. ``system`` reads from an experiment which queueing system an arm is,
``predict`` knows which form applies to it, or says why none does, ``measure`` takes
from recorded rows what was predicted, and ``compare`` sets one beside the other.
"""

from experiments.theory.mg1 import (
    MG1,
    Unstable,
    exponential_segments,
    quantised_load,
)
from experiments.theory.mmc import MMc, erlang_c, general_service
from experiments.theory.shares import (
    drr_bound,
    jain_index,
    pgps_delay_bound,
    sfq_bound,
    sfq_d_bound,
    share_by_connections,
    share_by_weight,
    share_of_fifo,
    share_of_priority,
)
from experiments.theory.sizes import Sizes

__all__ = [
    "MG1",
    "MMc",
    "Sizes",
    "Unstable",
    "drr_bound",
    "erlang_c",
    "exponential_segments",
    "general_service",
    "jain_index",
    "pgps_delay_bound",
    "quantised_load",
    "sfq_bound",
    "sfq_d_bound",
    "share_by_connections",
    "share_by_weight",
    "share_of_fifo",
    "share_of_priority",
]
