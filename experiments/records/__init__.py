"""What is kept of a run, and of the machine that it ran on."""
