import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * The consumer tuning lab: one topic, 4 partitions of 50,000 records of about 170 bytes, written first and then read to the end
 * under several fetch settings. Each round of each set is a fresh consumer; its time runs from the first poll until the position
 * has reached the end offset of every partition.
 *
 *   ConsumerLab bootstrap topic rounds name:fetch.min.bytes:fetch.max.wait.ms:max.poll.records...
 *
 * Prints one JSON line a round. Two rounds of the first two sets go before, uncounted, so that the JVM has compiled its code.
 */
public final class ConsumerLab {
    static final int PARTITIONS = 4, RECORDS_EACH = 50_000, VALUE_BYTES = 170;

    public static void main(String[] a) throws Exception {
        String bootstrap = a[0], topic = a[1];
        int rounds = Integer.parseInt(a[2]);
        List<String[]> sets = new ArrayList<>();
        for (int i = 3; i < a.length; i++) sets.add(a[i].split(":"));
        write(bootstrap, topic);
        for (int warm = 0; warm < 2; warm++)
            for (String[] set : sets.subList(0, Math.min(2, sets.size()))) read(bootstrap, topic, set);
        for (int round = 1; round <= rounds; round++) {
            for (String[] set : sets) System.out.println(read(bootstrap, topic, set).formatted(round));
            Collections.reverse(sets); // what comes later in a round is slower, whichever set it is
        }
    }

    static void write(String bootstrap, String topic) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(p)) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        }
        p.put("acks", "all");
        p.put("linger.ms", "10");
        Random random = new Random(170);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < PARTITIONS * RECORDS_EACH; n++) {
                StringBuilder value = new StringBuilder("{\"order\":").append(n).append(",\"amount\":").append(random.nextInt(100_000)).append(",\"note\":\"");
                while (value.length() < VALUE_BYTES - 2) value.append((char) ('a' + random.nextInt(26)));
                producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, value.append("\"}").toString().getBytes(StandardCharsets.US_ASCII)));
            }
            producer.flush();
        }
    }

    static String read(String bootstrap, String topic, String[] set) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        p.put("fetch.min.bytes", set[1]);
        p.put("fetch.max.wait.ms", set[2]);
        p.put("max.poll.records", set[3]);
        p.put("max.partition.fetch.bytes", "1048576");
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) all.add(new TopicPartition(topic, i));
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(all);
            Map<TopicPartition, Long> end = consumer.endOffsets(all);
            consumer.seekToBeginning(all);
            List<Long> polls = new ArrayList<>();
            long records = 0, empty = 0, work = 0, start = System.nanoTime();
            do {
                long before = System.nanoTime();
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(1000));
                polls.add(System.nanoTime() - before);
                if (batch.isEmpty()) empty++;
                for (ConsumerRecord<byte[], byte[]> r : batch) {
                    records++;
                    work = work * 31 + Arrays.hashCode(r.value());
                }
            } while (!all.stream().allMatch(tp -> consumer.position(tp) >= end.get(tp)));
            double ms = (System.nanoTime() - start) / 1e6;
            if (records != PARTITIONS * RECORDS_EACH) throw new IllegalStateException("read " + records + " records");
            Collections.sort(polls);
            return String.format(Locale.ROOT, "{\"set\":\"%s\",\"round\":%%d,\"ms\":%.1f,\"recordsPerSecond\":%.0f,\"pollP50Ms\":%.3f,\"pollP99Ms\":%.3f,\"polls\":%d,\"emptyPolls\":%d,\"work\":%d}",
                set[0], ms, records / ms * 1000, at(polls, 0.50), at(polls, 0.99), polls.size(), empty, work);
        }
    }

    /** The value that this share of the sorted ones does not exceed, in milliseconds. */
    static double at(List<Long> sorted, double share) {
        return sorted.get(Math.max(0, (int) Math.ceil(share * sorted.size()) - 1)) / 1e6;
    }
}
