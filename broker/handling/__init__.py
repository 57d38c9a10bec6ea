"""The frame of every handler: lookup, decoding, refusals, encoding."""
