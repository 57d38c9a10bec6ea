"""Transactions: the coordinator that begins and ends them, and its state machine."""
