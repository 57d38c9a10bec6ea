"""Theory as an oracle: predictions of queueing theory for a scheduler.

``mg1``, ``sizes``, ``mmc`` and ``shares`` are closed forms, and share no code with the
code that they judge. ``system`` reads the queueing system of an arm from an experiment,
``predict`` selects the form that applies, or the reason that none does, ``measure``
computes the predicted quantities from recorded rows, and ``compare`` compares both.
"""
