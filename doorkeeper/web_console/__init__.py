"""The web console: pages about any Kafka cluster; docs/console.md describes it.

Pages are rendered on the server, and read-only unless changes are allowed. A page
queries the cluster's brokers with the Trio client, within one time limit. A part
without an answer from its broker is marked.
"""
