"""The virtual world: the whole broker in virtual time."""
