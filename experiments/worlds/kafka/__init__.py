"""Apache Kafka as a world: version 3.9 with ZooKeeper, or 4.4 with KRaft."""
