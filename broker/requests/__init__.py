"""A request: what it is, which plane it goes to, where it waits."""
