"""What others see of a broker: log lines, metrics, a record of every request."""
