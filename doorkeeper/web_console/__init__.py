"""The web console: pages that show any Kafka cluster; docs/console.md shows how.

Pages are made on the server, and read-only unless changes are allowed. A page asks the
cluster's brokers by the Trio client, within one time limit, and shows a part that a
broker did not answer as such.
"""
