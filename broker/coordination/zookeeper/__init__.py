"""A broker as a member of a Kafka cluster under ZooKeeper: znodes and election."""
