"""The Kafka wire protocol: headers, bodies, frames.

`header` parses request headers, `codec` converts between bodies and entities, `hot` and
`single` are hand-written codecs of the most frequent messages.
"""
