"""Processes on this machine: ``doorkeeper cluster up``, and consoles beside brokers."""
