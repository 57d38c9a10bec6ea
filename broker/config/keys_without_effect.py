"""Kafka's keys that are accepted and have no effect here, by the feature they tune.

A stock ``server.properties``, for ZooKeeper or KRaft, may hold them. They are known so
that a misspelt key is still an error; `BrokerConfig.without_effect` lists the set ones,
for the log at start-up. Their values are not parsed. Keys of unsupported security
features are not among them: see `broker.config.security_keys`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.protocol.config_key import ConfigType, Key, optional_text

# A star: not listed by Kafka 3.9, being internal or of another release.
_FAMILIES: Final = {
    "KRaft's metadata quorum, which this broker does not take part in": """
        broker.heartbeat.interval.ms broker.session.timeout.ms
        controller.performance.always.log.threshold.ms*
        controller.performance.sample.period.ms* controller.quorum.append.linger.ms
        controller.quorum.auto.join.enable* controller.quorum.bootstrap.servers
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes* controller.quorum.fetch.snapshot.max.bytes*
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms controller.quorum.voters
        eligible.leader.replicas.enable initial.broker.registration.timeout.ms
        internal.metadata.delete.delay.millis* internal.metadata.log.segment.bytes*
        internal.metadata.max.batch.size.in.bytes*
        internal.metadata.max.fetch.size.in.bytes* metadata.log.dir
        metadata.log.max.record.bytes.between.snapshots
        metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes
        metadata.log.segment.min.bytes* metadata.log.segment.ms
        metadata.max.idle.interval.ms metadata.max.retention.bytes
        metadata.max.retention.ms server.max.startup.time.ms*
        sasl.mechanism.controller.protocol unclean.leader.election.interval.ms*
        unstable.api.versions.enable* unstable.feature.versions.enable*
        zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size*
        """,
    "ZooKeeper's own client": """
        zookeeper.clientCnxnSocket zookeeper.max.in.flight.requests zookeeper.set.acl
        zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable zookeeper.ssl.crl.enable
        zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm
        zookeeper.ssl.keystore.location zookeeper.ssl.keystore.password
        zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol
        zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password
        zookeeper.ssl.truststore.type zookeeper.sync.time.ms*
        """,
    "security features that are not served, of which it promises none": """
        delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
        delegation.token.max.lifetime.ms early.start.listeners
        password.encoder.cipher.algorithm password.encoder.iterations
        password.encoder.key.length password.encoder.keyfactory.algorithm
        password.encoder.old.secret password.encoder.secret security.providers
        """,
    "quotas": """
        client.quota.callback.class
        quota.consumer.default* quota.producer.default*
        """,
    "Java classes that Kafka loads": """
        alter.config.policy.class.name auto.include.jmx.reporter config.providers*
        create.topic.policy.class.name kafka.metrics.polling.interval.secs
        kafka.metrics.reporters log.cleaner.hash.algorithm* metric.reporters
        metrics.num.samples metrics.recording.level metrics.sample.window.ms
        replica.selector.class telemetry.max.bytes
        """,
    "share and streams groups, and threads of Kafka's coordinators": """
        group.coordinator.append.linger.ms group.coordinator.cached.buffer.max.bytes*
        group.coordinator.new.enable* group.coordinator.rebalance.protocols
        group.coordinator.threads group.share.assignors*
        group.share.delivery.count.limit group.share.enable*
        group.share.heartbeat.interval.ms group.share.max.groups
        group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms
        group.share.max.session.timeout.ms group.share.max.share.sessions*
        group.share.max.size group.share.min.heartbeat.interval.ms
        group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
        group.share.partition.max.record.locks group.share.persister.class.name*
        group.share.record.lock.duration.ms group.share.session.timeout.ms
        group.streams.heartbeat.interval.ms* group.streams.initial.rebalance.delay.ms*
        group.streams.max.heartbeat.interval.ms* group.streams.max.session.timeout.ms*
        group.streams.max.size* group.streams.max.standby.replicas*
        group.streams.min.heartbeat.interval.ms* group.streams.min.session.timeout.ms*
        group.streams.num.standby.replicas* group.streams.session.timeout.ms*
        share.coordinator.append.linger.ms* share.coordinator.cached.buffer.max.bytes*
        share.coordinator.cold.partition.snapshot.interval.ms*
        share.coordinator.load.buffer.size*
        share.coordinator.snapshot.update.records.per.snapshot*
        share.coordinator.state.topic.compression.codec*
        share.coordinator.state.topic.min.isr*
        share.coordinator.state.topic.num.partitions*
        share.coordinator.state.topic.prune.interval.ms*
        share.coordinator.state.topic.replication.factor*
        share.coordinator.state.topic.segment.bytes* share.coordinator.threads*
        share.coordinator.write.timeout.ms* share.fetch.max.fetch.records*
        share.fetch.purgatory.purge.interval.requests*
        """,
    "tiered storage": """
        log.local.retention.bytes log.local.retention.ms remote.fetch.max.wait.ms
        remote.list.offsets.request.timeout.ms*
        remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copier.thread.pool.size
        remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size
        remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size*
        remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms*
        remote.log.manager.task.retry.backoff.ms* remote.log.manager.task.retry.jitter*
        remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes
        remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
        remote.log.reader.threads remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
        remote.log.storage.system.enable
        """,
    "formats and versions other than this broker's": """
        inter.broker.protocol.version log.dir.failure.timeout.ms
        log.message.format.version
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        transaction.two.phase.commit.enable*
        """,
    "listeners before Kafka 3.0": """
        advertised.host.name* advertised.port* host.name* port*
        """,
}

# Kafka's keys of type PASSWORD: DescribeConfigs must not return them.
_SECRETS: Final = frozenset(
    {
        "password.encoder.old.secret",
        "password.encoder.secret",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.truststore.password",
    }
)

INERT: Final[tuple[Key[str | None], ...]] = tuple(
    replace(
        optional_text(
            name.rstrip("*"),
            f"Without effect: belongs to {family}.",
            type=ConfigType.PASSWORD if name in _SECRETS else ConfigType.STRING,
            inert=True,
        ),
        internal=name.endswith("*"),
    )
    for family, names in _FAMILIES.items()
    for name in names.split()
)
