"""A ZooKeeper server in memory, durable on disk, which speaks the wire protocol."""
