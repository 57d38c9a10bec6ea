"""Where a trace is replayed: real processes, virtual time, or the model."""
