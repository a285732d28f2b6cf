import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Writes the records of a file (key TAB value, one a line) to a topic, or reads a topic to its end.
 *
 *   Records produce bootstrap topic codec file
 *   Records consume bootstrap topic group|-
 *
 * Prints one JSON line. The checksum is the sum modulo 2^64 of crc32(key, 0, value) over all records, so that it does
 * not depend on the order of partitions; offsets must be without gaps and keys must rise within each partition.
 */
public final class Records {
    public static void main(String[] a) throws Exception {
        if (a[0].equals("produce")) produce(a[1], a[2], a[3], a[4]);
        else consume(a[1], a[2], a[3].equals("-") ? null : a[3]);
    }

    static void produce(String bootstrap, String topic, String codec, String file) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("compression.type", codec);
        p.put("linger.ms", "5");
        p.put("batch.size", "65536");
        AtomicReference<Exception> failed = new AtomicReference<>();
        long n = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
             BufferedReader in = Files.newBufferedReader(Path.of(file), StandardCharsets.UTF_8)) {
            for (String line; (line = in.readLine()) != null && failed.get() == null; n++) {
                int tab = line.indexOf('\t');
                producer.send(new ProducerRecord<>(topic, bytes(line.substring(0, tab)), bytes(line.substring(tab + 1))),
                    (meta, e) -> { if (e != null) failed.compareAndSet(null, e); });
            }
            producer.flush();
        }
        if (failed.get() != null) throw failed.get();
        System.out.println("{\"records\":" + n + "}");
    }

    static byte[] bytes(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    static void consume(String bootstrap, String topic, String group) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        if (group != null) p.put("group.id", group);
        try (KafkaConsumer<byte[], byte[]> c = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            c.partitionsFor(topic).forEach(i -> all.add(new TopicPartition(topic, i.partition())));
            Map<TopicPartition, Long> end = c.endOffsets(all);
            if (group != null) c.subscribe(List.of(topic));
            else { c.assign(all); c.seekToBeginning(all); }
            Map<TopicPartition, long[]> last = new HashMap<>(); // offset and key seen last
            long n = 0, sum = 0, idleSince = System.nanoTime();
            while (!atEnd(last, end)) {
                ConsumerRecords<byte[], byte[]> batch = c.poll(Duration.ofMillis(500));
                if (!batch.isEmpty()) idleSince = System.nanoTime();
                else if (System.nanoTime() - idleSince > 60_000_000_000L) throw new IllegalStateException("no record for 60 s, at " + n);
                for (ConsumerRecord<byte[], byte[]> r : batch) {
                    check(last.computeIfAbsent(new TopicPartition(topic, r.partition()), k -> new long[] {-1, -1}), r);
                    CRC32 crc = new CRC32();
                    crc.update(r.key());
                    crc.update(0);
                    crc.update(r.value());
                    sum += crc.getValue();
                    n++;
                }
            }
            if (group != null) c.commitSync();
            System.out.println("{\"records\":" + n + ",\"checksum\":\"" + Long.toHexString(sum) + "\"}");
        }
    }

    static boolean atEnd(Map<TopicPartition, long[]> last, Map<TopicPartition, Long> end) {
        return end.entrySet().stream().allMatch(e -> e.getValue() == 0 || last.containsKey(e.getKey()) && last.get(e.getKey())[0] + 1 >= e.getValue());
    }

    static void check(long[] last, ConsumerRecord<byte[], byte[]> r) {
        long key = Long.parseLong(new String(r.key(), StandardCharsets.US_ASCII));
        if (r.offset() != last[0] + 1 || key <= last[1])
            throw new IllegalStateException("partition " + r.partition() + ": offset " + r.offset() + " key " + key + " after offset " + last[0] + " key " + last[1]);
        last[0] = r.offset();
        last[1] = key;
    }
}
