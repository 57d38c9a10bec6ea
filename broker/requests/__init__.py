"""A request: its class, its plane, its waiting places."""
