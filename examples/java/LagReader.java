/*
 * Lag events in Avro, read with nothing of sparklag: Kafka's client, Avro, and the schema registry.
 * A member of a consumer group: at least once, and committed after the work, which here is a line.
 *
 * Needs Java 17 and, with what they need themselves, these Maven artifacts on the class path:
 *   org.apache.kafka:kafka-clients:4.1.1   org.apache.avro:avro:1.12.1
 * java -cp 'jars/*' LagReader.java --bootstrap-servers localhost:9092 \
 *     --registry http://localhost:8081 [--topic consumer-lag] [--group lag-reader]
 */

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class LagReader {
    /** A value that will be as unreadable the next time. */
    static class NotAvro extends Exception {
        NotAvro(String why) {
            super(why);
        }
    }

    static final Duration TIMEOUT = Duration.ofSeconds(10);
    static final int PREFIX = 5;  // a zero byte and the schema's id, as Confluent frames it

    final HttpClient http = HttpClient.newBuilder().connectTimeout(TIMEOUT).build();
    final Map<Integer, Schema> schemas = new HashMap<>();
    final String registry;

    LagReader(String registry) {
        this.registry = registry;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> told = new HashMap<>(
                Map.of("--topic", "consumer-lag", "--group", "lag-reader"));
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            told.put(arguments[i], arguments[i + 1]);
        }
        if (!told.containsKey("--bootstrap-servers") || !told.containsKey("--registry")) {
            System.err.println("needs --bootstrap-servers and --registry");
            System.exit(2);
        }
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", told.get("--bootstrap-servers"),
                "group.id", told.get("--group"),
                "enable.auto.commit", false,  // it would commit what is polled, not what is done
                "auto.offset.reset", "earliest",
                // Between two polls: the work on max.poll.records events. It is also how long the
                // group waits for this member when it shares its partitions anew.
                "max.poll.interval.ms", 120_000,
                "max.poll.records", 100);
        var consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException ignored) {
                // The JVM ends all the same.
            }
        }));
        var reader = new LagReader(told.get("--registry"));
        // Closing the consumer leaves the group: others go on at once.
        try (consumer) {
            consumer.subscribe(List.of(told.get("--topic")));
            while (true) {
                // Partitions change hands only in here, when all that was polled is committed.
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(reader.line(record));
                }
                commit(consumer);
            }
        } catch (WakeupException end) {
            // SIGTERM or Ctrl-C.
        }
    }

    static void commit(KafkaConsumer<?, ?> consumer) {
        try {
            consumer.commitSync();
        } catch (WakeupException end) {
            consumer.commitSync();  // the work is done: it is not to be done again
            throw end;
        } catch (CommitFailedException | RebalanceInProgressException late) {
            System.out.println("not committed, others do it again: " + late.getMessage());
        }
    }

    /** The work. A registry that does not answer ends the program, and nothing is committed. */
    String line(ConsumerRecord<String, byte[]> record) throws IOException, InterruptedException {
        if (record.value() == null) {
            return record.key() + " is forgotten";
        }
        try {
            GenericRecord event = read(record.value());
            Object name = event.get("query") == null ? event.get("query_id") : event.get("query");
            return "%s %s lag=%s worst=%s".formatted(
                    name, event.get("status"), event.get("total_lag"), worst(event));
        } catch (NotAvro error) {
            return "skipped %s-%d@%d: %s".formatted(
                    record.topic(), record.partition(), record.offset(), error.getMessage());
        }
    }

    /** The partition that is furthest behind; null where no lag is known. */
    static String worst(GenericRecord event) {
        String worst = null;
        long most = -1;
        for (GenericRecord topic : records(event.get("topics"))) {
            for (GenericRecord partition : records(topic.get("partitions"))) {
                if (partition.get("lag") instanceof Number lag && lag.longValue() > most) {
                    most = lag.longValue();
                    worst = "%s-%s:%d".formatted(
                            topic.get("topic"), partition.get("partition"), most);
                }
            }
        }
        return worst;
    }

    @SuppressWarnings("unchecked")  // Avro's generic records say no more
    static List<GenericRecord> records(Object found) {
        return (List<GenericRecord>) found;
    }

    GenericRecord read(byte[] value) throws NotAvro, IOException, InterruptedException {
        if (value.length < PREFIX) {
            throw new NotAvro("not Avro: " + value.length + " bytes");
        }
        if (value[0] != 0) {
            throw new NotAvro("not Avro: JSON, of before the format was changed?");
        }
        Schema schema = schema(ByteBuffer.wrap(value).getInt(1));
        BinaryDecoder decoder =
                DecoderFactory.get().binaryDecoder(value, PREFIX, value.length - PREFIX, null);
        try {
            GenericRecord event = new GenericDatumReader<GenericRecord>(schema).read(null, decoder);
            if (!decoder.isEnd()) {
                throw new NotAvro("more bytes than its schema says");
            }
            return event;
        } catch (IOException | AvroRuntimeException error) {
            throw new NotAvro("not what its schema says: " + error);
        }
    }

    /** The schema it was written in: asked for once. */
    Schema schema(int id) throws NotAvro, IOException, InterruptedException {
        Schema known = schemas.get(id);
        if (known != null) {
            return known;
        }
        var uri = URI.create(registry + "/schemas/ids/" + Integer.toUnsignedString(id));
        var answer = http.send(
                HttpRequest.newBuilder(uri).timeout(TIMEOUT).build(), BodyHandlers.ofString());
        if (answer.statusCode() == 404) {
            throw new NotAvro("the registry has no schema " + Integer.toUnsignedString(id));
        }
        if (answer.statusCode() != 200) {
            throw new IOException(uri + ": " + answer.statusCode());
        }
        var schema = new Schema.Parser()
                .parse(new ObjectMapper().readTree(answer.body()).get("schema").asText());
        if (!schema.getFullName().equals("sparklag.LagEvent")) {
            throw new NotAvro("it is a " + schema.getFullName());
        }
        schemas.put(id, schema);
        return schema;
    }
}
