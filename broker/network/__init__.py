"""The network layer, with Kafka's structure and most of its names.

``transport`` says what is needed of an operating system; ``epoll`` provides it from
real sockets. ``receive`` and ``send`` turn bytes into frames and back, ``mute`` and
``kafka_channel`` are one connection, ``kafka_selector`` the connections of one
``processor``. ``intake`` makes a request of a frame, ``request_channel`` passes it to
its plane, ``connection_quotas`` (by ``connection_rate``) and ``memory_pool`` say no,
``acceptor`` deals out connections, and ``socket_server`` holds it all together.
``settings`` is what all of them are told by the configuration.
"""
