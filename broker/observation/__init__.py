"""Views of a broker from outside: log lines, metrics, a record of every request."""
