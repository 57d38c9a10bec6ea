"""What a policy is: the jobs it sees, its verbs and laws, and the test of both."""
