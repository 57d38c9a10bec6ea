"""Who decides in the cluster, and the requests by which a decision reaches a broker."""
