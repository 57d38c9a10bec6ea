package doorkeeper;

/**
 * A queue discipline, called under the queue's lock: the methods of Python's {@code Scheduler} that
 * a policy without preemption needs.
 */
interface Order {
  void arrive(Entry entry, long nowNs);

  /** Remove and return the next entry to serve, or null. */
  Entry pick(long nowNs);

  /** Remove an entry from service; {@code entry.attainedNs} is its true cost. */
  void leave(Entry entry, long nowNs);

  int size();
}
