"""Authentication of clients by SASL: mechanisms, and the states of a connection."""
