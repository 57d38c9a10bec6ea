package doorkeeper;

/** A request in an order: the counterpart of Python's {@code Job}. */
final class Entry {
  final Object request;
  final long number;
  final String requestClass;
  final int level;
  final String flow;
  final double weight;
  final long costNs;

  /** The CPU time of its turn, set at the end of the turn. */
  long attainedNs;

  // Used by WfqOrder: the charged flow, and the amount.
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
