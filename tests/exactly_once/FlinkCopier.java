// Copies a topic by Flink with DeliveryGuarantee.EXACTLY_ONCE; see clients.py.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

public final class FlinkCopier {
    private FlinkCopier() {}

    /** Usage: FlinkCopier BOOTSTRAP NAME DIRECTORY SEED. */
    public static void main(String[] arguments) throws Exception {
        Path checkpoints = Path.of(arguments[2], "checkpoints");
        Files.createDirectories(checkpoints);
        Configuration config = new Configuration();
        config.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(300));
        config.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        config.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, checkpoints.toUri().toString());
        config.set(
                CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        config.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        config.set(
                RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, Integer.MAX_VALUE);
        config.set(
                RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(200));
        newest(checkpoints).ifPresent(
                found -> config.set(StateRecoveryOptions.SAVEPOINT_PATH, found.toUri().toString()));
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(1, config);
        environment
                .fromSource(source(arguments[0]), WatermarkStrategy.noWatermarks(), "source")
                .uid("source")
                .flatMap(new FailNowAndThen(arguments[3].hashCode()))
                .uid("faults")
                .sinkTo(sink(arguments[0]))
                .uid("target");
        environment.execute();
    }

    /** Returns the directory of the newest complete checkpoint of any predecessor. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(each -> each.endsWith("_metadata"))
                    .max(Comparator.comparing(FlinkCopier::writtenAt))
                    .map(Path::getParent);
        }
    }

    private static FileTime writtenAt(Path file) {
        try {
            return Files.getLastModifiedTime(file);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static KafkaSource<String> source(String bootstrap) {
        return KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics("source")
                .setGroupId("copiers")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setProperty("max.poll.records", "20")
                .setDeserializer(new Copies())
                .build();
    }

    private static KafkaSink<String> sink(String bootstrap) {
        return KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("copiers")
                // A prepared transaction must not time out before the recovery from a crash.
                .setProperty("transaction.timeout.ms", "300000")
                .setRecordSerializer((copy, context, timestamp) -> {
                    int partition = copy.charAt(0) == 'a' ? 0 : copy.charAt(0) - '0';
                    return new ProducerRecord<>(
                            "target", partition, null, copy.getBytes(StandardCharsets.UTF_8));
                })
                .build();
    }

    private static final class Copies implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            out.collect(record.partition() + " " + record.offset() + " " + value);
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    /**
     * A deliberate failure, after which Flink restores a checkpoint. Each attempt completes a
     * checkpoint before it fails, so that the backlog shrinks.
     */
    private static final class FailNowAndThen extends RichFlatMapFunction<String, String>
            implements CheckpointListener {
        private final int seed;
        private transient Random random;
        private transient boolean hasCheckpoint;

        private FailNowAndThen(int seed) {
            this.seed = seed;
        }

        @Override
        public void open(OpenContext context) {
            // Each attempt fails at another record.
            random = new Random(seed + getRuntimeContext().getTaskInfo().getAttemptNumber());
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            hasCheckpoint = true;
        }

        @Override
        public void flatMap(String copy, Collector<String> out) {
            if (hasCheckpoint && random.nextInt(500) == 0) {
                out.collect("aborted " + copy);
                throw new IllegalStateException("planned");
            }
            out.collect(copy);
        }
    }
}
