"""The contract of a policy: the jobs it sees, its verbs, its laws and their test."""
