"""A Kafka broker on Trio whose request scheduling is pluggable."""

import broker.protocol.kio_import  # noqa: F401 - before anything imports kio
