import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Prints kafka-keys.json: the type, default and validator of every broker key, as Kafka
 * defines it. Run with the jars of org.apache.kafka:kafka_2.13:3.9.1 and its dependencies:
 * java -cp 'jars/*' KafkaKeys.java > kafka-keys.json
 */
public class KafkaKeys {
    public static void main(String[] arguments) {
        ConfigDef definition = kafka.server.KafkaConfig$.MODULE$.configDef();
        System.out.println(new TreeMap<>(definition.configKeys()).entrySet().stream()
            .map(KafkaKeys::line)
            .collect(Collectors.joining(",\n", "{\n", "\n}")));
    }

    private static String line(Map.Entry<String, ConfigDef.ConfigKey> entry) {
        ConfigDef.ConfigKey key = entry.getValue();
        boolean none = key.defaultValue == null || key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
        String value = none ? null : ConfigDef.convertToString(key.defaultValue, key.type);
        String validator = key.validator == null ? null : key.validator.toString();
        return String.format("  %s: [%s, %s, %s]",
            quoted(key.name), quoted(key.type.name()), quoted(value), quoted(validator));
    }

    private static String quoted(String text) {
        if (text == null) return "null";
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
