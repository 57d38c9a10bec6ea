import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;

/**
 * Writes messages as Kafka's own serializers do. Reads lines of message name, api key,
 * version and JSON (tabs between); prints each frame in hexadecimal, header included and
 * size excluded. Correlation id 7, client id "golden".
 */
public class Golden {
    private static final String PACKAGE = "org.apache.kafka.common.message.";

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", 4);
            short version = Short.parseShort(parts[2]);
            ApiKeys key = ApiKeys.forId(Integer.parseInt(parts[1]));
            Class<?> converter = Class.forName(PACKAGE + parts[0] + "DataJsonConverter");
            ApiMessage message = (ApiMessage) converter
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, mapper.readTree(parts[3]), version);
            System.out.println(HexFormat.of().formatHex(frame(key, version, message, parts[0])));
        }
    }

    private static byte[] frame(ApiKeys key, short version, ApiMessage message, String name) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ApiMessage header;
        short headerVersion;
        if (name.endsWith("Request")) {
            header = new RequestHeader(key, version, "golden", 7).data();
            headerVersion = key.requestHeaderVersion(version);
        } else {
            headerVersion = key.responseHeaderVersion(version);
            header = new ResponseHeader(7, headerVersion).data();
        }
        int size = header.size(cache, headerVersion) + message.size(cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(size);
        header.write(new ByteBufferAccessor(buffer), cache, headerVersion);
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }
}
