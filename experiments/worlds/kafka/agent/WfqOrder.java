package doorkeeper;

import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;

/**
 * Start-time fair queueing by weight for several servers, corrected by the true cost: SFQ(D), as
 * {@code schedulers/policies/wfq.py} without preemption.
 *
 * <p>Virtual time is an integer: nanoseconds of CPU time, multiplied by UNIT and divided by the
 * weight. It would overflow after 39 hours of CPU time.
 */
final class WfqOrder implements Order {
  private static final long UNIT = 1 << 16;
  private static final int SLACK = 64;

  static final class Flow {
    final ArrayDeque<Entry> entries = new ArrayDeque<>();
    long finish;
    long floor;
    int inService;
    // Position in the set of waiting flows.
    long start;
    long number;

    Flow(long virtual) {
      finish = virtual;
      floor = virtual;
    }
  }

  private final Map<String, Flow> flows = new HashMap<>();
  private final TreeSet<Flow> waiting =
      new TreeSet<>(
          Comparator.<Flow>comparingLong(flow -> flow.start).thenComparingLong(flow -> flow.number));
  private long virtual;
  // The latest finish of a flow without requests in service.
  private long latest;
  private int size;
  private int inService;
  private int sweepAt = SLACK;

  @Override
  public void arrive(Entry entry, long nowNs) {
    if (size == 0 && inService == 0 && latest > virtual) {
      // The queue was idle, so no flow is owed service.
      virtual = latest;
    }
    Flow flow = flows.get(entry.flow);
    if (flow == null) {
      flow = open(entry.flow);
    }
    size++;
    flow.entries.addLast(entry);
    if (flow.entries.size() == 1) {
      flow.floor = virtual;
      place(flow);
    }
  }

  @Override
  public Entry pick(long nowNs) {
    Flow flow = waiting.pollFirst();
    if (flow == null) {
      return null;
    }
    Entry entry = flow.entries.pollFirst();
    virtual = Math.max(virtual, flow.start);
    size--;
    inService++;
    flow.inService++;
    entry.charged = flow;
    entry.chargedNs = entry.costNs;
    flow.finish = flow.start + entry.chargedNs * perNs(entry);
    if (!flow.entries.isEmpty()) {
      flow.floor = flow.start;
      place(flow);
    }
    return entry;
  }

  @Override
  public void leave(Entry entry, long nowNs) {
    Flow flow = entry.charged;
    flow.inService--;
    inService--;
    boolean waits = !flow.entries.isEmpty();
    if (waits) {
      waiting.remove(flow);
    }
    flow.finish += (entry.attainedNs - entry.chargedNs) * perNs(entry);
    if (waits) {
      place(flow);
    }
    if (flow.inService == 0) {
      latest = Math.max(latest, flow.finish);
    }
  }

  @Override
  public int size() {
    return size;
  }

  private static long perNs(Entry entry) {
    return Math.max(1, Math.round(UNIT / entry.weight));
  }

  private void place(Flow flow) {
    flow.start = Math.max(flow.finish, flow.floor);
    flow.number = flow.entries.peekFirst().number;
    waiting.add(flow);
  }

  private Flow open(String name) {
    if (flows.size() > sweepAt) {
      // Idle flows behind virtual time would start at virtual time, as new flows do.
      flows
          .values()
          .removeIf(it -> it.entries.isEmpty() && it.inService == 0 && it.finish <= virtual);
      sweepAt = Math.max(SLACK, 2 * flows.size());
    }
    Flow flow = new Flow(virtual);
    flows.put(name, flow);
    return flow;
  }
}
