// Kafka Connect: copies the lines of files in transactions of its own; see connect.py.

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.ConnectorTransactionBoundaries;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.source.TransactionContext;

public final class LinesConnector extends SourceConnector {
    private Map<String, String> config;

    @Override
    public void start(Map<String, String> given) {
        config = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return LinesTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        List<Map<String, String>> found = new ArrayList<>();
        for (String file : config.get("files").split(",")) {
            found.add(Map.of("file", file));
        }
        return found;
    }

    @Override
    public void stop() {}

    @Override
    public ConfigDef config() {
        return new ConfigDef()
                .define("files", ConfigDef.Type.LIST, ConfigDef.Importance.HIGH, "A task each.");
    }

    @Override
    public String version() {
        return "1";
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public ConnectorTransactionBoundaries canDefineTransactionBoundaries(
            Map<String, String> given) {
        return ConnectorTransactionBoundaries.SUPPORTED;
    }

    /** Reads up to 20 lines in a transaction; aborts one in ten on purpose. */
    public static final class LinesTask extends SourceTask {
        private static final int LINES = 20;
        private final Random random = new Random(1);
        private Map<String, String> partition;
        private RandomAccessFile file;
        private long position;

        @Override
        public void start(Map<String, String> given) {
            partition = Map.of("file", given.get("file"));
            Map<String, Object> offset = context.offsetStorageReader().offset(partition);
            position = offset == null ? 0 : (Long) offset.get("position");
            try {
                file = new RandomAccessFile(given.get("file"), "r");
            } catch (IOException error) {
                throw new ConnectException(error);
            }
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            boolean isAborted = random.nextInt(10) == 0;
            List<SourceRecord> records = new ArrayList<>();
            try {
                long before = position;
                String line;
                while (records.size() < LINES && (line = line()) != null) {
                    // Connect also commits the offsets of an aborted transaction.
                    long offset = isAborted ? before : position;
                    String value = isAborted ? "aborted " + line : line;
                    records.add(new SourceRecord(
                            partition, Map.of("position", offset), "target", 0,
                            Schema.STRING_SCHEMA, value));
                }
                position = isAborted ? before : position;
            } catch (IOException error) {
                throw new ConnectException(error);
            }
            if (records.isEmpty()) {
                Thread.sleep(50);
                return null;
            }
            TransactionContext transaction = context.transactionContext();
            if (isAborted) {
                transaction.abortTransaction();
            } else {
                transaction.commitTransaction();
            }
            return records;
        }

        /** Returns the next complete line, or null, and advances the position past it. */
        private String line() throws IOException {
            byte[] bytes = new byte[64];
            file.seek(position);
            int size = file.read(bytes);
            String text = size < 0 ? "" : new String(bytes, 0, size, StandardCharsets.UTF_8);
            int end = text.indexOf('\n');
            if (end < 0) {
                return null;
            }
            position += end + 1;
            return text.substring(0, end);
        }

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }
}
