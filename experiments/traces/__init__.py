"""Traces derived from published data sets, in the format of ``[workload] trace``."""
