package doorkeeper;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;

/**
 * Replays a script of arrivals, picks and ends to an order; prints the number of each pick, or -1.
 *
 * <pre>
 * arrive NUMBER CLASS LEVEL FLOW WEIGHT COST_NS NOW_NS
 * pick NOW_NS
 * leave NUMBER ATTAINED_NS NOW_NS
 * </pre>
 */
public final class Replay {
  private Replay() {}

  public static void main(String[] arguments) throws Exception {
    Order order =
        switch (arguments[0]) {
          case "fifo" -> new FifoOrder();
          case "priority" -> new PriorityOrder(Long.parseLong(arguments[1]));
          case "wfq" -> new WfqOrder();
          default -> throw new IllegalArgumentException(arguments[0]);
        };
    Map<Long, Entry> entries = new HashMap<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    StringBuilder picks = new StringBuilder();
    String line;
    while ((line = lines.readLine()) != null) {
      String[] words = line.split(" ");
      switch (words[0]) {
        case "arrive" -> {
          Entry entry =
              new Entry(
                  null,
                  Long.parseLong(words[1]),
                  words[2],
                  Integer.parseInt(words[3]),
                  words[4],
                  Double.parseDouble(words[5]),
                  Long.parseLong(words[6]));
          entries.put(entry.number, entry);
          order.arrive(entry, Long.parseLong(words[7]));
        }
        case "pick" -> {
          Entry entry = order.pick(Long.parseLong(words[1]));
          picks.append(entry == null ? -1 : entry.number).append('\n');
        }
        case "leave" -> {
          Entry entry = entries.get(Long.valueOf(words[1]));
          entry.attainedNs = Long.parseLong(words[2]);
          order.leave(entry, Long.parseLong(words[3]));
        }
        default -> throw new IllegalArgumentException(line);
      }
    }
    System.out.print(picks);
  }
}
