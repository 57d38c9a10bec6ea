package doorkeeper;

import java.util.ArrayDeque;

/** First in, first out. */
final class FifoOrder implements Order {
  private final ArrayDeque<Entry> entries = new ArrayDeque<>();

  @Override
  public void arrive(Entry entry, long nowNs) {
    entries.addLast(entry);
  }

  @Override
  public Entry pick(long nowNs) {
    return entries.pollFirst();
  }

  @Override
  public void leave(Entry entry, long nowNs) {}

  @Override
  public int size() {
    return entries.size();
  }
}
