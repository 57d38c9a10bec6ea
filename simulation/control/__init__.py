"""Controllers of a simulated cluster: a script, or a broker under ZooKeeper."""
