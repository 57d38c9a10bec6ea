"""The network layer, with Kafka's structure and most of its names.

``transport`` is the interface to an operating system; ``epoll`` implements it with real
sockets. ``receive`` and ``send`` turn bytes into frames and back, ``mute`` and
``kafka_channel`` are one connection, ``kafka_selector`` the connections of one
``processor``. ``intake`` turns a frame into a request, and ``request_channel`` passes
the request to its plane. ``connection_quotas`` and ``memory_pool`` set limits,
``acceptor`` distributes connections, and ``socket_server`` combines all of them.
``settings`` reads their part of the configuration.
"""
