package doorkeeper;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.PriorityQueue;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** * Kafka's request queue with another order, and another rule for a full queue. * * <p>A
processor calls {@code put}, a handler thread {@code poll}. A handler serves one request at a *
time, so its next {@code poll} ends the turn of the last request. The thread's CPU time between *
the two calls is the cost of that request. * * <p>With a blind reader {@code put} blocks the
processor while the queue is full, as in Kafka. With * a class-aware reader it never blocks: a
refused request waits outside of the queue, the most * urgent class first. Kafka mutes a connection
until its request is answered, so at most one request * of each connection waits there. * *
<p>Handlers are not preempted. Kafka's signals to its handlers are no requests: wake-ups are *
served first, shutdown signals last. */
public final class PolicyQueue extends ArrayBlockingQueue<Object> {
  private static final long serialVersionUID = 1;
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private static final class Turn {
    Entry entry;
    long startedNs;
  }

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition notEmpty = lock.newCondition();
  private final Condition room = lock.newCondition();
  private final int capacity;
  private final Settings settings = Agent.settings;
  private final Order order = settings.newOrder();
  private final Requests requests = new Requests(settings);
  private final ThreadLocal<Turn> turns = ThreadLocal.withInitial(Turn::new);
  private final PriorityQueue<Entry> refused =
      new PriorityQueue<>(
          Comparator.<Entry>comparingInt(it -> it.level).thenComparingLong(it -> it.number));
  private final ArrayDeque<Object> wakeUps = new ArrayDeque<>();
  private final ArrayDeque<Object> ends = new ArrayDeque<>();

  public PolicyQueue(int capacity) {
    super(1);
    this.capacity = capacity;
  }

  @Override
  public void put(Object element) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      Entry entry = requests.entry(element);
      if (entry == null) {
        signal(element);
        return;
      }
      if (settings.classAware) {
        if (!enter(entry)) {
          refused.add(entry);
        }
        return;
      }
      while (!enter(entry)) {
        room.await();
      }
    } finally {
      lock.unlock();
    }
  }

  /** Called by Kafka for signals only, which have no bound here. */
  @Override
  public boolean offer(Object element) {
    lock.lock();
    try {
      Entry entry = requests.entry(element);
      if (entry == null) {
        signal(element);
        return true;
      }
      return enter(entry);
    } finally {
      lock.unlock();
    }
  }

  @Override
  public Object poll(long timeout, TimeUnit unit) throws InterruptedException {
    long leftNs = unit.toNanos(timeout);
    lock.lockInterruptibly();
    try {
      Turn turn = turns.get();
      end(turn);
      while (true) {
        Object next = next(turn);
        if (next != null) {
          return next;
        }
        if (leftNs <= 0) {
          return null;
        }
        leftNs = notEmpty.awaitNanos(leftNs);
      }
    } finally {
      lock.unlock();
    }
  }

  @Override
  public Object take() throws InterruptedException {
    while (true) {
      Object next = poll(1, TimeUnit.HOURS);
      if (next != null) {
        return next;
      }
    }
  }

  @Override
  public int size() {
    lock.lock();
    try {
      return order.size() + wakeUps.size() + ends.size();
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void clear() {
    lock.lock();
    try {
      while (order.pick(System.nanoTime()) != null) {}
      refused.clear();
      wakeUps.clear();
      ends.clear();
      room.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void signal(Object element) {
    boolean ends = element.getClass().getName().contains("ShutdownRequest");
    (ends ? this.ends : wakeUps).addLast(element);
    notEmpty.signal();
  }

  private boolean enter(Entry entry) {
    if (order.size() >= capacity && !settings.favoured.contains(entry.requestClass)) {
      return false;
    }
    order.arrive(entry, System.nanoTime());
    notEmpty.signal();
    return true;
  }

  private Object next(Turn turn) {
    if (!wakeUps.isEmpty()) {
      return wakeUps.pollFirst();
    }
    Entry entry = order.pick(System.nanoTime());
    if (entry == null) {
      return ends.pollFirst();
    }
    // After the first refusal, only a favoured class of a less urgent level could be admitted.
    while (!refused.isEmpty() && enter(refused.peek())) {
      refused.poll();
    }
    room.signal();
    turn.entry = entry;
    turn.startedNs = THREADS.getCurrentThreadCpuTime();
    return entry.request;
  }

  private void end(Turn turn) {
    Entry entry = turn.entry;
    if (entry == null) {
      return;
    }
    turn.entry = null;
    entry.attainedNs = THREADS.getCurrentThreadCpuTime() - turn.startedNs;
    requests.learn(entry);
    order.leave(entry, System.nanoTime());
  }
}
