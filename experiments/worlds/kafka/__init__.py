"""Apache Kafka serves the trace: version 3.9 with ZooKeeper, or 4.4 with KRaft."""
