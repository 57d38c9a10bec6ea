"""The work behind the commands, imported only when one of them runs."""
