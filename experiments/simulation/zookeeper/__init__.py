"""A ZooKeeper server in memory, which speaks its wire protocol in virtual time."""
