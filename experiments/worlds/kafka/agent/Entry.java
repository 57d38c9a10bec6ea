package doorkeeper;

/** A request as an order sees it: the counterpart of Python's {@code Job}. */
final class Entry {
  final Object request;
  final long number;
  final String requestClass;
  final int level;
  final String flow;
  final double weight;
  final long costNs;

  /** The CPU time that its turn used, once it has ended. */
  long attainedNs;

  // Of WfqOrder: the flow charged, and by how much.
  WfqOrder.Flow charged;
  long chargedNs;

  Entry(
      Object request,
      long number,
      String requestClass,
      int level,
      String flow,
      double weight,
      long costNs) {
    this.request = request;
    this.number = number;
    this.requestClass = requestClass;
    this.level = level;
    this.flow = flow;
    this.weight = weight;
    this.costNs = costNs;
  }
}
