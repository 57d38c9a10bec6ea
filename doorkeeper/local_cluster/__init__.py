"""The processes of ``doorkeeper cluster up``, and commands to them."""
