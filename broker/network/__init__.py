"""The network layer, with Kafka's structure and most of its names.

``transport`` is the interface to an operating system; ``epoll`` implements it with real
sockets. ``receive`` and ``send`` turn bytes into frames and back, ``mute`` and
``kafka_channel`` are one connection, ``kafka_selector`` the connections of one
``processor``. ``intake`` makes a request of a frame, ``request_channel`` passes it to
its plane, ``connection_quotas`` (by ``connection_rate``) and ``memory_pool`` set
limits, ``acceptor`` distributes connections, and ``socket_server`` holds it all
together. ``settings`` reads their part of the configuration.
"""
