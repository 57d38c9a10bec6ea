"""Helpers shared by the files of several APIs; none of them knows a single API."""
