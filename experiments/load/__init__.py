"""The load: traces drawn from a seed, and the open loop that sends them."""
