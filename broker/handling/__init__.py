"""What stands around every handler: finding it, decoding, refusals, encoding."""
