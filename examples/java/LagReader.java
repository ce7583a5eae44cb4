/*
 * Lag events in Avro, read with nothing of sparklag: Kafka's client, Avro, and the schema registry.
 * A member of a consumer group: at least once, and committed after the work, which here is a line.
 *
 * Needs Java 17 and, with what they need themselves, these Maven artifacts on the class path:
 *   org.apache.kafka:kafka-clients:4.4.0   org.apache.avro:avro:1.12.1
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
        Map<String, String> options = new HashMap<>(
                Map.of("--topic", "consumer-lag", "--group", "lag-reader"));
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i], arguments[i + 1]);
        }
        if (!options.containsKey("--bootstrap-servers") || !options.containsKey("--registry")) {
            System.err.println("needs --bootstrap-servers and --registry");
            System.exit(2);
        }
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", options.get("--bootstrap-servers"),
                "group.id", options.get("--group"),
                "enable.auto.commit", false,  // it would commit what is polled, not what is processed
                "auto.offset.reset", "earliest",
                // The longest time between two polls: enough to process max.poll.records events.
                // It is also how long a rebalance waits for this member.
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
                // The JVM ends anyway.
            }
        }));
        var reader = new LagReader(options.get("--registry"));
        // Closing the consumer leaves the group: others take over at once.
        try (consumer) {
            consumer.subscribe(List.of(options.get("--topic")));
            while (true) {
                // Rebalances happen only in here, when all polled records are committed.
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
            consumer.commitSync();  // so that the next owner does not process the records again
            throw end;
        } catch (CommitFailedException | RebalanceInProgressException late) {
            System.out.println("not committed, the next owner processes it again: " + late.getMessage());
        }
    }

    /** Your code. Where the registry does not respond, the program ends without a commit. */
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

    /** The partition with the most left to read; null where none is known. */
    static String worst(GenericRecord event) {
        String worst = null;
        long most = -1;
        for (GenericRecord topic : records(event.get("topics"))) {
            for (GenericRecord partition : records(topic.get("partitions"))) {
                Object readable = partition.get("readable_lag");
                if ((readable == null ? partition.get("lag") : readable) instanceof Number left
                        && left.longValue() > most) {
                    most = left.longValue();
                    worst = "%s-%s:%d".formatted(
                            topic.get("topic"), partition.get("partition"), most);
                }
            }
        }
        return worst;
    }

    @SuppressWarnings("unchecked")  // Avro's generic records have no element types
    static List<GenericRecord> records(Object list) {
        return (List<GenericRecord>) list;
    }

    GenericRecord read(byte[] value) throws NotAvro, IOException, InterruptedException {
        if (value.length < PREFIX) {
            throw new NotAvro("not Avro: " + value.length + " bytes");
        }
        if (value[0] != 0) {
            throw new NotAvro("not Avro: JSON from before the format was changed?");
        }
        Schema schema = schema(ByteBuffer.wrap(value).getInt(1));
        BinaryDecoder decoder =
                DecoderFactory.get().binaryDecoder(value, PREFIX, value.length - PREFIX, null);
        try {
            GenericRecord event = new GenericDatumReader<GenericRecord>(schema).read(null, decoder);
            if (!decoder.isEnd()) {
                throw new NotAvro("more bytes than its schema has");
            }
            return event;
        } catch (IOException | AvroRuntimeException error) {
            throw new NotAvro("does not match its schema: " + error);
        }
    }

    /** The schema of a value, fetched once. */
    Schema schema(int id) throws NotAvro, IOException, InterruptedException {
        Schema cached = schemas.get(id);
        if (cached != null) {
            return cached;
        }
        var uri = URI.create(registry + "/schemas/ids/" + Integer.toUnsignedString(id));
        var response = http.send(
                HttpRequest.newBuilder(uri).timeout(TIMEOUT).build(), BodyHandlers.ofString());
        if (response.statusCode() == 404) {
            throw new NotAvro("the registry has no schema " + Integer.toUnsignedString(id));
        }
        if (response.statusCode() != 200) {
            throw new IOException(uri + ": " + response.statusCode());
        }
        var schema = new Schema.Parser()
                .parse(new ObjectMapper().readTree(response.body()).get("schema").asText());
        if (!schema.getFullName().equals("sparklag.LagEvent")) {
            throw new NotAvro("it is a " + schema.getFullName());
        }
        schemas.put(id, schema);
        return schema;
    }
}
