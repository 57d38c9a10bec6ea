"""Where a trace is replayed: real processes, virtual time, the model, Apache Kafka."""
