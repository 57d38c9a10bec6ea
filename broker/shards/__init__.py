"""Objects kept in an internal topic: shards by partition, their loading, their log."""
