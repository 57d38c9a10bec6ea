package doorkeeper;

import java.util.ArrayDeque;
import java.util.Map;
import java.util.TreeMap;

/**
 * Most urgent level first, arrival order within a level. A level unserved for {@code ageingNs} is
 * served next. Equivalent to {@code schedulers/policies/np_priority.py}.
 */
final class PriorityOrder implements Order {
  private static final class Level {
    final ArrayDeque<Entry> entries = new ArrayDeque<>();
    long unservedSinceNs;
  }

  private final long ageingNs;
  private final Map<Integer, Level> levels = new TreeMap<>();
  // The levels with entries, the most urgent first.
  private final TreeMap<Integer, Level> busy = new TreeMap<>();
  private int size;

  PriorityOrder(long ageingNs) {
    this.ageingNs = ageingNs;
  }

  @Override
  public void arrive(Entry entry, long nowNs) {
    Level level = levels.computeIfAbsent(entry.level, number -> new Level());
    if (level.entries.isEmpty()) {
      level.unservedSinceNs = nowNs;
      busy.put(entry.level, level);
    }
    level.entries.addLast(entry);
    size++;
  }

  @Override
  public Entry pick(long nowNs) {
    if (size == 0) {
      return null;
    }
    Map.Entry<Integer, Level> next = busy.firstEntry();
    if (ageingNs > 0 && busy.size() > 1) {
      next = mostStarved(nowNs, next);
    }
    Level level = next.getValue();
    Entry entry = level.entries.pollFirst();
    size--;
    if (level.entries.isEmpty()) {
      busy.remove(next.getKey());
    } else {
      level.unservedSinceNs = nowNs;
    }
    return entry;
  }

  private Map.Entry<Integer, Level> mostStarved(long nowNs, Map.Entry<Integer, Level> first) {
    Map.Entry<Integer, Level> longest = first;
    for (Map.Entry<Integer, Level> each : busy.entrySet()) {
      if (each.getValue().unservedSinceNs < longest.getValue().unservedSinceNs) {
        longest = each;
      }
    }
    return nowNs < longest.getValue().unservedSinceNs + ageingNs ? first : longest;
  }

  @Override
  public void leave(Entry entry, long nowNs) {
    levels.get(entry.level).unservedSinceNs = nowNs;
  }

  @Override
  public int size() {
    return size;
  }
}
