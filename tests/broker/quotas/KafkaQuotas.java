import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.Supplier;
import kafka.server.ClientQuotaManager;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.ControllerMutationQuota;
import kafka.server.ControllerMutationQuotaManager;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import scala.Option;

/**
 * Prints the answers of Kafka's quota managers to random events. Run with the jars of
 * org.apache.kafka:kafka_2.13:3.9.1 and its dependencies:
 * java -cp 'jars/*' KafkaQuotas.java clients > kafka-quotas.tsv
 * java -cp 'jars/*' KafkaQuotas.java mutations > kafka-mutations.tsv
 *
 * Lines of clients (ClientQuotaManager and ClientRequestQuotaManager): "new" kind windows
 * seconds; "bound" entity value; "record" milliseconds user client value throttle-ms; "most"
 * user client value, the largest that passes at once. Names are sanitized.
 *
 * Lines of mutations (ControllerMutationQuotaManager): "new" windows seconds; "bound" user
 * value; "record" milliseconds user partitions is-strict is-refused throttle-ms.
 */
public class KafkaQuotas {
    private static final String[] USERS = {"alice", "b\u00f6b/x ~", "ANONYMOUS"};
    private static final String[] CLIENTS = {"c1", "c 2/\u00e9", ""};
    private static final String DEFAULT = "<default>";
    private static final String[] MUTATING_USERS = {"alice", "bob"};

    private static final class Clock implements Time {
        long nowMs;

        Clock(long nowMs) { this.nowMs = nowMs; }

        public long milliseconds() { return nowMs; }
        public long nanoseconds() { return nowMs * 1_000_000; }
        public void sleep(long ms) { nowMs += ms; }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] arguments) throws Exception {
        boolean isOfClients = arguments[0].equals("clients");
        Random random = new Random(isOfClients ? 11 : 13);
        for (int episode = 0; episode < (isOfClients ? 30 : 20); episode++) {
            if (isOfClients) {
                episodeOfClients(random, episode % 3 == 2);
            } else {
                episodeOfMutations(random);
            }
        }
        System.exit(0);
    }

    private static void episodeOfClients(Random random, boolean isRequest) throws Exception {
        Clock clock = new Clock(1_000_000);
        int windows = 2 + random.nextInt(10), seconds = 1 + random.nextInt(2);
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(windows, seconds);
        Metrics metrics = new Metrics(clock);
        ClientQuotaManager manager = isRequest
            ? new ClientRequestQuotaManager(config, metrics, clock, "", Option.empty())
            : new ClientQuotaManager(config, metrics, kafka.server.QuotaType.Produce$.MODULE$,
                clock, "", Option.empty());
        print("new", isRequest ? "request" : "bytes", windows, seconds);
        List<String[]> bounded = new ArrayList<>();
        for (int number = 1 + random.nextInt(5); number > 0; number--) {
            String[] entity = {user(random), client(random)};
            if (entity[0] != null || entity[1] != null) {
                bounded.add(entity);
                bound(manager, entity, random, isRequest);
            }
        }
        for (int number = 0; number < 30; number++) {
            clock.nowMs += random.nextInt(random.nextInt(8) == 0 ? 15_000 : 900);
            if (!bounded.isEmpty() && random.nextInt(12) == 0) {
                bound(manager, bounded.get(random.nextInt(bounded.size())), random, isRequest);
            }
            String user = USERS[random.nextInt(USERS.length)];
            String client = CLIENTS[random.nextInt(CLIENTS.length)];
            Session session = new Session(
                new KafkaPrincipal("User", user), InetAddress.getLoopbackAddress());
            double value = isRequest ? random.nextInt(9000) / 64.0 : random.nextInt(30_000);
            int throttleMs =
                manager.maybeRecordAndGetThrottleTimeMs(session, client, value, clock.nowMs);
            print("record", clock.nowMs, Sanitizer.sanitize(user), Sanitizer.sanitize(client),
                value, throttleMs);
            if (random.nextInt(10) == 0) {
                print("most", Sanitizer.sanitize(user), Sanitizer.sanitize(client),
                    manager.getMaxValueInQuotaWindow(session, client));
            }
        }
        manager.shutdown();
    }

    private static void episodeOfMutations(Random random) throws Exception {
        Clock clock = new Clock(1_000_000_000_000L);
        int windows = 1 + random.nextInt(11), seconds = 1 + random.nextInt(3);
        ControllerMutationQuotaManager manager = new ControllerMutationQuotaManager(
            new ClientQuotaManagerConfig(windows, seconds), new Metrics(clock), clock, "",
            Option.empty());
        print("new", windows, seconds);
        for (String user : MUTATING_USERS) {
            bound(manager, user, random);
        }
        for (int number = 0; number < 40; number++) {
            clock.nowMs += random.nextInt(random.nextInt(8) == 0 ? 15_000 : 900);
            String user = MUTATING_USERS[random.nextInt(MUTATING_USERS.length)];
            if (random.nextInt(12) == 0) {
                bound(manager, user, random);
            }
            Session session = new Session(
                new KafkaPrincipal("User", user), InetAddress.getLoopbackAddress());
            boolean isStrict = random.nextInt(3) != 0, isRefused = false;
            ControllerMutationQuota quota = isStrict
                ? manager.newStrictQuotaFor(session, "c")
                : manager.newPermissiveQuotaFor(session, "c");
            int partitions = random.nextInt(number % 10 == 0 ? 200 : 12);
            try {
                quota.record(partitions);
            } catch (ThrottlingQuotaExceededException error) {
                isRefused = true;
            }
            print("record", clock.nowMs, user, partitions, isStrict, isRefused,
                quota.throttleTime());
        }
        manager.shutdown();
    }

    private static void bound(
        ControllerMutationQuotaManager manager, String user, Random random
    ) {
        double bound = (1 + random.nextInt(80)) / 8.0;
        manager.updateQuota(Option.apply(user), Option.empty(), Option.empty(),
            Option.apply(new Quota(bound, true)));
        print("bound", user, bound);
    }

    private static void bound(
        ClientQuotaManager manager, String[] entity, Random random, boolean isRequest
    ) {
        double bound = isRequest ? 1 + random.nextInt(8000) / 128.0 : 300 + random.nextInt(4000);
        String user = entity[0] == null ? null : sanitized(entity[0]);
        String client = entity[1] == null ? null : sanitized(entity[1]);
        manager.updateQuota(Option.apply(user), Option.apply(entity[1]), Option.apply(client),
            Option.apply(new Quota(bound, true)));
        String path = user == null ? "" : "users/" + user;
        if (client != null) {
            path += (path.isEmpty() ? "" : "/") + "clients/" + client;
        }
        print("bound", path, bound);
    }

    private static String sanitized(String name) {
        return name.equals(DEFAULT) ? name : Sanitizer.sanitize(name);
    }

    private static String user(Random random) {
        int drawn = random.nextInt(USERS.length + 3);
        return drawn < USERS.length ? USERS[drawn] : drawn == USERS.length ? DEFAULT : null;
    }

    private static String client(Random random) {
        int drawn = random.nextInt(5);
        return drawn < 2 ? CLIENTS[drawn] : drawn == 2 ? DEFAULT : null;
    }

    private static void print(Object... columns) {
        StringBuilder line = new StringBuilder();
        for (Object column : columns) {
            line.append(line.length() == 0 ? "" : "\t").append(column);
        }
        System.out.println(line);
    }
}
