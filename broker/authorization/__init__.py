"""Authorization: access control lists, decisions by them, and the audit log."""
