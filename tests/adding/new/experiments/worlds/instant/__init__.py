"""A world in which nothing takes time."""
