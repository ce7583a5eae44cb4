import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** The partition in which Kafka's own producer puts each key: how many there are, then the keys. */
public class PartitionOf {
    public static void main(String[] arguments) {
        int partitions = Integer.parseInt(arguments[0]);
        for (int i = 1; i < arguments.length; i++) {
            byte[] key = arguments[i].getBytes(StandardCharsets.UTF_8);
            System.out.println(BuiltInPartitioner.partitionForKey(key, partitions));
        }
    }
}
