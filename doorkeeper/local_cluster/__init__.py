"""Processes on this machine: ``doorkeeper cluster up``, and consoles of brokers."""
