// Copies a topic in transactions by Kafka's own producer and consumer; see clients.py.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class JavaCopier {
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Random random;

    private JavaCopier(String bootstrap, String name, String seed) {
        random = new Random(seed.hashCode());
        Properties shared = new Properties();
        shared.put("bootstrap.servers", bootstrap);
        shared.put("client.id", name);
        Properties producing = new Properties();
        producing.putAll(shared);
        producing.put("transactional.id", name);
        producing.put("transaction.timeout.ms", "10000");
        producer = new KafkaProducer<>(
                producing, new ByteArraySerializer(), new ByteArraySerializer());
        Properties consuming = new Properties();
        consuming.putAll(shared);
        consuming.put("group.id", "copiers");
        consuming.put("isolation.level", "read_committed");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("enable.auto.commit", "false");
        consuming.put("session.timeout.ms", "3000");
        consuming.put("heartbeat.interval.ms", "500");
        consuming.put("max.poll.records", "20");
        consumer = new KafkaConsumer<>(
                consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Usage: JavaCopier BOOTSTRAP NAME DIRECTORY SEED. */
    public static void main(String[] arguments) {
        JavaCopier copier = new JavaCopier(arguments[0], arguments[1], arguments[3]);
        try {
            copier.run();
        } catch (KafkaException fatal) {
            fatal.printStackTrace();
            // Halt without closing, as in a crash.
            Runtime.getRuntime().halt(1);
        }
    }

    private void run() {
        producer.initTransactions();
        consumer.subscribe(List.of("source"));
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            if (!records.isEmpty()) {
                copy(records);
            }
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> records) {
        boolean isAborted = random.nextInt(10) == 0;
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> each : records) {
                producer.send(copyOf(each, isAborted));
                behind.put(
                        new TopicPartition(each.topic(), each.partition()),
                        new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(behind, consumer.groupMetadata());
            if (isAborted) {
                producer.flush();
                abort();
            } else {
                commit();
            }
        } catch (ApplicationRecoverableException fatal) {
            // Fenced: only the successor can continue.
            throw fatal;
        } catch (KafkaException abortable) {
            System.err.println("aborted: " + abortable);
            abort();
        }
    }

    private static ProducerRecord<byte[], byte[]> copyOf(
            ConsumerRecord<byte[], byte[]> record, boolean isAborted) {
        String value = new String(record.value(), StandardCharsets.UTF_8);
        String copy = (isAborted ? "aborted " : "")
                + record.partition() + " " + record.offset() + " " + value;
        return new ProducerRecord<>(
                "target", record.partition(), null, copy.getBytes(StandardCharsets.UTF_8));
    }

    private void commit() {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException unknown) {
                // The outcome is unknown; Kafka requires a retry of the same call.
                System.err.println("again: " + unknown);
            }
        }
    }

    /** Aborts, and seeks back to the committed offsets. */
    private void abort() {
        producer.abortTransaction();
        consumer.committed(consumer.assignment()).forEach((partition, committed) ->
                consumer.seek(partition, committed == null ? 0 : committed.offset()));
    }
}
