package doorkeeper;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

/**
 * Settings of the queue, as in the properties file.
 *
 * <pre>
 * order           fifo, priority or wfq
 * reader          blind: a full queue blocks the processor; class-aware: it does not
 * admission       block: the bound applies to all classes; exempt: not to favoured ones
 * favoured        classes, separated by commas
 * ageing.ns       the longest time without service of a level under priority; 0: no bound
 * flow            class, client.id or connection: the flows of wfq
 * class.KEY       the class of the API with this key; class: of all others
 * level.CLASS     the priority level of a class, 0 the most urgent
 * weight.CLASS    the weight of a class under wfq, 1 by default
 * </pre>
 */
final class Settings {
  private static final int API_KEYS = 256;
  private static final String REPLICATION = "replication";

  final String order;
  final boolean classAware;
  final Set<String> favoured;
  final long ageingNs;
  final String flow;
  private final String[] classes = new String[API_KEYS];
  private final Map<String, Integer> levels = new HashMap<>();
  private final Map<String, Double> weights = new HashMap<>();

  Settings(Properties properties) {
    order = choice(properties, "order", Set.of("fifo", "priority", "wfq"));
    classAware =
        choice(properties, "reader", Set.of("blind", "class-aware")).equals("class-aware");
    boolean exempt = choice(properties, "admission", Set.of("block", "exempt")).equals("exempt");
    favoured = exempt ? Set.of(required(properties, "favoured").split(",")) : Set.of();
    ageingNs = Long.parseLong(required(properties, "ageing.ns"));
    flow = choice(properties, "flow", Set.of("class", "client.id", "connection"));
    String others = required(properties, "class");
    for (int key = 0; key < API_KEYS; key++) {
      classes[key] = properties.getProperty("class." + key, others);
    }
    for (String key : properties.stringPropertyNames()) {
      if (key.startsWith("level.")) {
        levels.put(key.substring(6), Integer.valueOf(properties.getProperty(key)));
      } else if (key.startsWith("weight.")) {
        weights.put(key.substring(7), Double.valueOf(properties.getProperty(key)));
      }
    }
  }

  Order newOrder() {
    return switch (order) {
      case "fifo" -> new FifoOrder();
      case "priority" -> new PriorityOrder(ageingNs);
      default -> new WfqOrder();
    };
  }

  String classOf(int apiKey, boolean fromFollower) {
    if (fromFollower) {
      return REPLICATION;
    }
    return classes[apiKey];
  }

  int levelOf(String requestClass) {
    return levels.get(requestClass);
  }

  double weightOf(String requestClass) {
    return weights.getOrDefault(requestClass, 1.0);
  }

  private static String required(Properties properties, String key) {
    String value = properties.getProperty(key);
    if (value == null) {
      throw new IllegalArgumentException(key + " is missing");
    }
    return value;
  }

  private static String choice(Properties properties, String key, Set<String> choices) {
    String value = required(properties, key);
    if (!choices.contains(value)) {
      throw new IllegalArgumentException(key + " = " + value + ", expected one of " + choices);
    }
    return value;
  }
}
