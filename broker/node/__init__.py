"""A broker without its sockets: logs, replicas, groups and coordination, joined."""
