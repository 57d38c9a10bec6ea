"""Who controls a simulated cluster that has no controller among its brokers."""
