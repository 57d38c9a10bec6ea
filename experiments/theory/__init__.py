"""Queueing theory as an oracle for schedulers.

``mg1``, ``sizes``, ``mmc`` and ``shares`` are closed forms, and share no code with the
simulators and brokers that they judge. ``system`` derives the queueing system of an arm
from an experiment. ``predict`` selects the form that applies, or the reason that none
does. ``measure`` computes the predicted quantities from recorded rows. ``compare``
compares both.
"""
