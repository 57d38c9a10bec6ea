"""ZooKeeper from Trio: its client protocol, and a session that outlives connections."""
