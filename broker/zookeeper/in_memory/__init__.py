"""A ZooKeeper server in memory, which speaks ZooKeeper's wire protocol."""
