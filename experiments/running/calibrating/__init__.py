"""What requests cost on a machine: by light bursts, by the load, entry by entry."""
