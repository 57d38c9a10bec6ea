"""A world in which all requests take no time."""
