// Copies a topic by Kafka Streams with exactly_once_v2, and counts in a store; see clients.py.

import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public final class StreamsCopier {
    private StreamsCopier() {}

    /** Usage: StreamsCopier BOOTSTRAP NAME DIRECTORY SEED. */
    public static void main(String[] arguments) {
        Random random = new Random(arguments[3].hashCode());
        Properties config = new Properties();
        config.put("application.id", "copiers");
        config.put("bootstrap.servers", arguments[0]);
        config.put("client.id", arguments[1]);
        config.put("state.dir", arguments[2] + "/" + arguments[1]);
        config.put("processing.guarantee", StreamsConfig.EXACTLY_ONCE_V2);
        config.put("commit.interval.ms", "100");
        config.put("statestore.cache.max.bytes", "0");
        config.put("producer.transaction.timeout.ms", "10000");
        config.put("consumer.session.timeout.ms", "3000");
        config.put("consumer.heartbeat.interval.ms", "500");
        config.put("main.consumer.max.poll.records", "20");
        KafkaStreams streams = new KafkaStreams(topology(random), config);
        streams.setUncaughtExceptionHandler(error -> {
            if (!hasCause(error, Planned.class)) {
                error.printStackTrace();
            }
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }

    private static Topology topology(Random random) {
        // A copy begins with its partition's number; "aborted" copies go to partition 0.
        StreamPartitioner<byte[], byte[]> partitioner = (topic, key, value, partitions) ->
                Optional.of(Set.of(value[0] == 'a' ? 0 : value[0] - '0'));
        return new Topology()
                .addSource(
                        "source", new ByteArrayDeserializer(), new ByteArrayDeserializer(), "source")
                .addProcessor("copier", () -> new Copier(random), "source")
                .addStateStore(
                        Stores.keyValueStoreBuilder(
                                Stores.inMemoryKeyValueStore("counts"),
                                Serdes.Integer(),
                                Serdes.Long()),
                        "copier")
                .addSink(
                        "target",
                        "target",
                        new ByteArraySerializer(),
                        new ByteArraySerializer(),
                        partitioner,
                        "copier");
    }

    private static boolean hasCause(Throwable error, Class<?> type) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (type.isInstance(each)) {
                return true;
            }
        }
        return false;
    }

    /** A deliberate failure, after which Streams aborts the transaction. */
    private static final class Planned extends RuntimeException {}

    private static final class Copier implements Processor<byte[], byte[], byte[], byte[]> {
        private final Random random;
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<Integer, Long> counts;

        private Copier(Random random) {
            this.random = random;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            this.context = context;
            counts = context.getStateStore("counts");
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            RecordMetadata metadata = context.recordMetadata().orElseThrow();
            Long before = counts.get(metadata.partition());
            long count = before == null ? 1 : before + 1;
            counts.put(metadata.partition(), count);
            String copy = metadata.partition() + " " + metadata.offset() + " "
                    + new String(record.value(), StandardCharsets.UTF_8) + " " + count;
            boolean isAborted = random.nextInt(400) == 0;
            byte[] value = ((isAborted ? "aborted " : "") + copy).getBytes(StandardCharsets.UTF_8);
            context.forward(record.withValue(value));
            if (isAborted) {
                throw new Planned();
            }
        }
    }
}
