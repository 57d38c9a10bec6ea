import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

/**
 * Parses texts with java.util.Properties. Input: each text after its length in bytes.
 * Output per text: the number of keys, or -1 if Java refuses the text, then keys and
 * values, each after its length in bytes.
 */
public class PropertiesReader {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        for (int texts = in.readInt(); texts > 0; texts--) {
            byte[] text = in.readNBytes(in.readInt());
            Properties found = new Properties();
            try {
                found.load(new StringReader(new String(text, StandardCharsets.UTF_8)));
            } catch (IllegalArgumentException refused) {
                out.writeInt(-1);
                continue;
            }
            out.writeInt(found.size());
            for (String key : found.stringPropertyNames()) {
                write(out, key);
                write(out, found.getProperty(key));
            }
        }
        out.flush();
    }

    private static void write(DataOutputStream out, String text) throws IOException {
        out.writeInt(2 * text.length());
        out.writeChars(text);
    }
}
