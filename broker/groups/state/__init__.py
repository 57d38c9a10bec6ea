"""A group as values: members, states, offsets, and the records that hold them."""
