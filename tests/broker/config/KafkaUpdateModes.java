import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Prints kafka-update-modes.txt: the broker configs that a running Kafka can alter, each
 * with its scope (one broker or the cluster), and the internal ones, which DescribeConfigs
 * omits. Run with the jars of org.apache.kafka:kafka_2.13:3.9.1 and its dependencies:
 * java -cp 'jars/*' KafkaUpdateModes.java > kafka-update-modes.txt
 */
public class KafkaUpdateModes {
    public static void main(String[] arguments) {
        TreeMap<String, String> modes = new TreeMap<>(
            kafka.server.DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes());
        ConfigDef definition = kafka.server.KafkaConfig$.MODULE$.configDef();
        definition.configKeys().values().stream()
            .filter(key -> key.internalConfig)
            .forEach(key -> modes.put(key.name, "internal"));
        modes.forEach((name, mode) -> System.out.println(name + " " + mode));
    }
}
