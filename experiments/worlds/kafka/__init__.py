"""Apache Kafka beside our broker."""
