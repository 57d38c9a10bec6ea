"""Traces made of published data sets, in the format of ``[workload] trace``."""
