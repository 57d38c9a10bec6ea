package doorkeeper;

/**
 * A queue discipline, called under the queue's lock: the verbs of Python's {@code Scheduler} that a
 * policy without preemption needs.
 */
interface Order {
  void arrive(Entry entry, long nowNs);

  /** Remove and return the entry to serve next, or null. */
  Entry pick(long nowNs);

  /** Take an entry out of service; {@code entry.attainedNs} is its true cost. */
  void leave(Entry entry, long nowNs);

  int size();
}
