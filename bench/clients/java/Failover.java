import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * A steady producer with acks=all, until its standard input ends.
 *
 *   Failover bootstrap topic records-a-second [property=value]...
 *
 * Prints `g BEGIN END` for every time of at least 5 ms without an acknowledgement, `a TIME COUNT` ten times a second, and `e ERROR` for
 * each record that failed. Times are milliseconds since 1970, with decimals.
 */
public final class Failover {
    static final double GAP_MS = 5;
    static double last, told;
    static long count;

    static double now() {
        java.time.Instant i = java.time.Instant.now();
        return i.getEpochSecond() * 1e3 + i.getNano() / 1e6;
    }

    static synchronized void acknowledged(Exception error) {
        double now = now();
        if (error != null) {
            System.out.println("e " + error.toString().replace('\n', ' '));
        } else {
            count++;
            if (last != 0 && now - last >= GAP_MS) System.out.printf(Locale.ROOT, "g %.3f %.3f%n", last, now);
            last = now;
        }
        if (now - told >= 100) {
            System.out.printf(Locale.ROOT, "a %.3f %d%n", last, count);
            told = now;
        }
    }

    public static void main(String[] a) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", a[0]);
        p.put("acks", "all");
        p.put("delivery.timeout.ms", "300000");
        p.put("max.block.ms", "300000");
        for (int i = 3; i < a.length; i++) p.put(a[i].split("=", 2)[0], a[i].split("=", 2)[1]);
        byte[] value = new byte[1000];
        Thread input = new Thread(() -> {
            try { while (System.in.read() >= 0) { } } catch (java.io.IOException e) { }
            System.out.flush();
            Runtime.getRuntime().halt(0);
        });
        input.setDaemon(true);
        input.start();
        double step = 1e9 / Integer.parseInt(a[2]);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            long begin = System.nanoTime();
            for (long i = 0; ; i++) {
                long due = begin + (long) (i * step), now;
                while ((now = System.nanoTime()) < due) LockSupport.parkNanos(due - now);
                producer.send(new ProducerRecord<>(a[1], 0, null, value), (metadata, error) -> acknowledged(error));
            }
        }
    }
}
