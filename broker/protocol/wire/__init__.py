"""The Kafka wire protocol: headers, bodies, frames.

`header` parses what every request starts with, `codec` turns bodies into entities and
back, `hot` and `single` read and write by hand what is sent most.
"""
