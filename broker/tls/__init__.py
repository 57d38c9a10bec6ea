"""TLS by OpenSSL: contexts from Kafka's keys, stores, names of certificates.

Nothing here opens a socket. Listeners are in `broker.network`, connections to brokers
in `broker.client`.
"""
