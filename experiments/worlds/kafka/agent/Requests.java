package doorkeeper;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.RequestContext;

/** * Class, flow and expected cost of Kafka's requests, as in Doorkeeper's classifier. * * <p>The
class of a request has moved between versions of Kafka, so its methods are looked up in the * class
of the first request. */
final class Requests {
  private static final long UNKNOWN_COST_NS = 50_000;
  // A moving average over about eight requests.
  private static final int AVERAGE_SHIFT = 3;
  private static final int API_KEYS = 256;
  private static final int SIZES = 32;

  private final Settings settings;
  private Class<?> requestType;
  private MethodHandle context;
  private MethodHandle size;
  private MethodHandle body;
  private long number;
  private final long[][] costNs = new long[API_KEYS][SIZES];
  private final long[] costOfApiNs = new long[API_KEYS];

  Requests(Settings settings) {
    this.settings = settings;
  }

  /** Return a queue element as an entry; null if it is one of Kafka's signals to its handlers. */
  Entry entry(Object element) {
    if (element.getClass() != requestType && !isRequest(element)) {
      return null;
    }
    RequestContext of = context(element);
    int apiKey = of.header.apiKey().id;
    String requestClass = settings.classOf(apiKey, isFollowers(apiKey, element));
    String flow =
        switch (settings.flow) {
          case "class" -> requestClass;
          case "client.id" -> requestClass + "/" + of.header.clientId();
          default -> requestClass + "/" + of.connectionId;
        };
    return new Entry(
        element,
        number++,
        requestClass,
        settings.levelOf(requestClass),
        flow,
        settings.weightOf(requestClass),
        expectedNs(apiKey, sizeOf(element)));
  }

  /** Update the expected cost from the CPU time that a request used. */
  void learn(Entry entry) {
    int apiKey = context(entry.request).header.apiKey().id;
    long[] bySize = costNs[apiKey];
    int bits = bits(sizeOf(entry.request));
    bySize[bits] = average(bySize[bits], entry.attainedNs);
    costOfApiNs[apiKey] = average(costOfApiNs[apiKey], entry.attainedNs);
  }

  private long expectedNs(int apiKey, int sizeBytes) {
    long known = costNs[apiKey][bits(sizeBytes)];
    if (known == 0) {
      known = costOfApiNs[apiKey];
    }
    return known == 0 ? UNKNOWN_COST_NS : known;
  }

  private static long average(long known, long costNs) {
    return known == 0 ? costNs : known + (costNs - known >> AVERAGE_SHIFT);
  }

  private static int bits(int value) {
    return SIZES - 1 - Math.min(SIZES - 1, Integer.numberOfLeadingZeros(value | 1));
  }

  private boolean isRequest(Object element) {
    Class<?> type = element.getClass();
    try {
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      context = lookup.findVirtual(type, "context", MethodType.methodType(RequestContext.class));
      size = lookup.findVirtual(type, "sizeInBytes", MethodType.methodType(int.class));
      body =
          lookup.findVirtual(
              type, "loggableRequest", MethodType.methodType(AbstractRequest.class));
    } catch (NoSuchMethodException | IllegalAccessException not) {
      return false;
    }
    requestType = type;
    return true;
  }

  private RequestContext context(Object element) {
    try {
      return (RequestContext) context.invoke(element);
    } catch (Throwable problem) {
      throw new IllegalStateException(problem);
    }
  }

  private int sizeOf(Object element) {
    try {
      return (int) size.invoke(element);
    } catch (Throwable problem) {
      throw new IllegalStateException(problem);
    }
  }

  private boolean isFollowers(int apiKey, Object element) {
    if (apiKey != ApiKeys.FETCH.id) {
      return false;
    }
    try {
      return ((FetchRequest) (AbstractRequest) body.invoke(element)).isFromFollower();
    } catch (Throwable problem) {
      throw new IllegalStateException(problem);
    }
  }
}
