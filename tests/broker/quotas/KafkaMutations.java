import java.net.InetAddress;
import java.util.Random;
import java.util.function.Supplier;
import kafka.server.ControllerMutationQuota;
import kafka.server.ControllerMutationQuotaManager;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import scala.Option;

/**
 * Prints kafka-mutations.tsv: what ControllerMutationQuotaManager answers to drawn events. Run
 * with the jars of org.apache.kafka:kafka_2.13:3.9.1 and its dependencies:
 * java -cp 'jars/*' KafkaMutations.java > kafka-mutations.tsv
 *
 * Lines: "new" windows seconds; "bound" user value; "record" milliseconds user partitions
 * is-strict is-refused throttle-ms.
 */
public class KafkaMutations {
    private static final String[] USERS = {"alice", "bob"};

    private static final class Clock implements Time {
        long nowMs = 1_000_000_000_000L;

        public long milliseconds() { return nowMs; }
        public long nanoseconds() { return nowMs * 1_000_000; }
        public void sleep(long ms) { nowMs += ms; }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Random random = new Random(13);
        for (int episode = 0; episode < 20; episode++) {
            episode(random);
        }
        System.exit(0);
    }

    private static void episode(Random random) throws Exception {
        Clock clock = new Clock();
        int windows = 1 + random.nextInt(11), seconds = 1 + random.nextInt(3);
        ControllerMutationQuotaManager manager = new ControllerMutationQuotaManager(
            new ClientQuotaManagerConfig(windows, seconds), new Metrics(clock), clock, "",
            Option.empty());
        print("new", windows, seconds);
        for (String user : USERS) {
            bound(manager, user, random);
        }
        for (int number = 0; number < 40; number++) {
            clock.nowMs += random.nextInt(random.nextInt(8) == 0 ? 15_000 : 900);
            String user = USERS[random.nextInt(USERS.length)];
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

    private static void print(Object... columns) {
        StringBuilder line = new StringBuilder();
        for (Object column : columns) {
            line.append(line.length() == 0 ? "" : "\t").append(column);
        }
        System.out.println(line);
    }
}
