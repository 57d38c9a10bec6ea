import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Runs Kafka's command-line programs in one Java process, one after another.
 *
 * Starting Java for each program would take a second, longer than most programs run. A
 * program is called as by its shell script, with its own streams; a call to exit ends the
 * program only. Its classes are loaded anew each time, because some keep state in static
 * fields; the libraries below them (clients, Scala) stay loaded.
 *
 * On standard input: class name, input, number of arguments, arguments. On standard output:
 * status, output, errors. Numbers are 4 bytes, texts are preceded by their size in bytes.
 */
public final class ToolServer {
    private static final class Ended extends Error {
        Ended(int status) {
            super("exit " + status, null, false, false);
        }
    }

    /** An output stream with a replaceable target, so that its users can keep it. */
    private static final class Switch extends OutputStream {
        private volatile ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public void write(int each) {
            target.write(each);
        }

        @Override
        public void write(byte[] bytes, int from, int size) {
            target.write(bytes, from, size);
        }

        byte[] take() {
            byte[] taken = target.toByteArray();
            target = new ByteArrayOutputStream();
            return taken;
        }
    }

    /** Loads the programs' classes; other classes come from the application's loader. */
    private static final class ProgramLoader extends ClassLoader {
        ProgramLoader() {
            super(ToolServer.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") && !name.startsWith("kafka.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> known = findLoadedClass(name);
                return known == null ? findClass(name) : known;
            }
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            String file = name.replace('.', '/') + ".class";
            try (InputStream stream = getParent().getResourceAsStream(file)) {
                if (stream == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] code = stream.readAllBytes();
                return defineClass(name, code, 0, code.length);
            } catch (IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }

    private static Integer status;

    public static void main(String[] none) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Switch out = new Switch();
        Switch err = new Switch();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        interceptExits();
        while (true) {
            String program;
            try {
                program = text(requests);
            } catch (EOFException finished) {
                return;
            }
            System.setIn(new ByteArrayInputStream(bytes(requests)));
            String[] arguments = new String[requests.readInt()];
            for (int at = 0; at < arguments.length; at++) {
                arguments[at] = text(requests);
            }
            answers.writeInt(run(program, arguments));
            System.out.flush();
            System.err.flush();
            for (Switch each : List.of(out, err)) {
                byte[] printed = each.take();
                answers.writeInt(printed.length);
                answers.write(printed);
            }
            answers.flush();
        }
    }

    /** Replaces the exit procedures in Kafka's class Exit, which Kafka 4.4 has moved. */
    private static void interceptExits() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException moved) {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object end = Proxy.newProxyInstance(
            procedure.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, given) -> {
                int code = (Integer) given[0];
                if (status == null) {
                    status = code;
                }
                throw new Ended(code);
            });
        exit.getMethod("setExitProcedure", procedure).invoke(null, end);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, end);
    }

    private static int run(String program, String[] arguments) throws Exception {
        status = null;
        ClassLoader loader = new ProgramLoader();
        Thread.currentThread().setContextClassLoader(loader);
        try {
            Class<?> main = Class.forName(program, true, loader);
            main.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            // An exception after the program's exit carries no further information.
            if (status == null) {
                error.getCause().printStackTrace();
                status = 1;
            }
        }
        for (Thread hook : takeShutdownHooks()) {
            hook.run();
        }
        return status == null ? 0 : status;
    }

    /** Removes and returns the shutdown hooks; they belong to the program. */
    @SuppressWarnings("unchecked")
    private static List<Thread> takeShutdownHooks() throws ReflectiveOperationException {
        Class<?> all = Class.forName("java.lang.ApplicationShutdownHooks");
        Field field = all.getDeclaredField("hooks");
        field.setAccessible(true);
        Map<Thread, Thread> hooks = (Map<Thread, Thread>) field.get(null);
        List<Thread> taken = new ArrayList<>(hooks.keySet());
        hooks.clear();
        return taken;
    }

    private static String text(DataInputStream stream) throws IOException {
        return new String(bytes(stream), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(DataInputStream stream) throws IOException {
        return stream.readNBytes(stream.readInt());
    }
}
