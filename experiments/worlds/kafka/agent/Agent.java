package doorkeeper;

import java.io.Reader;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.ProtectionDomain;
import java.util.Properties;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/**
 * Replaces the request queue of a running, unmodified Apache Kafka.
 *
 * <p>The constructor of {@code kafka.network.RequestChannel} creates two queues of the type {@code
 * ArrayBlockingQueue}: the request queue and, after it, the queue of callbacks. The agent replaces
 * the type of the first one by {@link PolicyQueue}, a subclass. No other code of Kafka names the
 * class.
 *
 * <p>The argument is a properties file, see {@link Settings}. With {@code queue=kafka} the agent is
 * loaded and changes nothing.
 */
public final class Agent {
  private static final String CHANNEL = "kafka/network/RequestChannel";
  private static final String KAFKA_QUEUE = "java/util/concurrent/ArrayBlockingQueue";
  private static final String POLICY_QUEUE = "doorkeeper/PolicyQueue";

  static Settings settings;

  private Agent() {}

  public static void premain(String file, Instrumentation instrumentation) throws Exception {
    Properties properties = new Properties();
    try (Reader reader = Files.newBufferedReader(Path.of(file))) {
      properties.load(reader);
    }
    if (properties.getProperty("queue", "").equals("kafka")) {
      return;
    }
    settings = new Settings(properties);
    instrumentation.addTransformer(new Transformer());
  }

  private static final class Transformer implements ClassFileTransformer {
    @Override
    public byte[] transform(
        ClassLoader loader, String name, Class<?> old, ProtectionDomain domain, byte[] bytes) {
      if (!CHANNEL.equals(name)) {
        return null;
      }
      try {
        return withPolicyQueue(bytes);
      } catch (Throwable problem) {
        // Otherwise the JVM would continue with the original class, and measure Kafka's queue.
        System.err.println("The request queue of this Kafka cannot be replaced: " + problem);
        Runtime.getRuntime().halt(1);
        return null;
      }
    }
  }

  static byte[] withPolicyQueue(byte[] bytes) {
    ClassReader reader = new ClassReader(bytes);
    ClassWriter writer = new ClassWriter(reader, 0);
    int[] replaced = {0};
    reader.accept(
        new ClassVisitor(Opcodes.ASM9, writer) {
          @Override
          public MethodVisitor visitMethod(
              int access, String name, String descriptor, String signature, String[] raises) {
            MethodVisitor next = super.visitMethod(access, name, descriptor, signature, raises);
            return name.equals("<init>") ? new FirstQueue(next, replaced) : next;
          }
        },
        0);
    if (replaced[0] != 2) {
      throw new IllegalStateException("its constructor makes no ArrayBlockingQueue");
    }
    return writer.toByteArray();
  }

  /** Replaces the first pair of NEW and INVOKESPECIAL. */
  private static final class FirstQueue extends MethodVisitor {
    private final int[] replaced;

    FirstQueue(MethodVisitor next, int[] replaced) {
      super(Opcodes.ASM9, next);
      this.replaced = replaced;
    }

    @Override
    public void visitTypeInsn(int opcode, String type) {
      if (opcode == Opcodes.NEW && type.equals(KAFKA_QUEUE) && replaced[0] == 0) {
        replaced[0] = 1;
        type = POLICY_QUEUE;
      }
      super.visitTypeInsn(opcode, type);
    }

    @Override
    public void visitMethodInsn(
        int opcode, String owner, String name, String descriptor, boolean isInterface) {
      if (opcode == Opcodes.INVOKESPECIAL
          && owner.equals(KAFKA_QUEUE)
          && name.equals("<init>")
          && replaced[0] == 1) {
        replaced[0] = 2;
        owner = POLICY_QUEUE;
      }
      super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
    }
  }
}
