"""Who controls a simulated cluster: a script, or one of its brokers under ZooKeeper."""
