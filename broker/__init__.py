"""A Kafka broker on Trio whose request scheduling is pluggable."""

import broker.protocol.library_imports  # noqa: F401 - before all other imports
