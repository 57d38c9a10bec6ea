"""The live world: real processes, sockets and files."""
