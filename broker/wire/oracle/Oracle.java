// The oracle of the wire's golden files: Apache Kafka's own code writes every message in every version, with defaults and with seeded
// random values, besides header versions, error codes and record batches. Run by `cargo xtask generate golden`; a line per fact on
// standard output, the same for every run. Arguments: the names of the messages that are stored or embedded rather than sent.

import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.internals.ImplicitLinkedHashCollection;
import org.apache.kafka.common.utils.internals.ImplicitLinkedHashMultiCollection;

public final class Oracle {
    private static final int RANDOM_FIXTURES = 6;
    private static final String[] DATA_PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
    };

    public static void main(String[] dataMessages) throws Exception {
        for (ApiKeys key : ApiKeys.values()) {
            System.out.printf("key %d %s%n", key.id, key.name);
        }
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.printf("error %d %s %b%n", error.code(), error.name(), retriable);
        }
        for (ApiMessageType api : ApiMessageType.values()) {
            short min = api.lowestSupportedVersion();
            short max = api.highestSupportedVersion(true);
            if (max < min) {
                continue;
            }
            System.out.printf("api %s %d %d %d%n", api.name, min, api.highestSupportedVersion(false), max);
            for (short version = min; version <= max; version++) {
                int request = api.requestHeaderVersion(version);
                System.out.printf("header %s %d %d %d%n", api.name, version, request, api.responseHeaderVersion(version));
            }
            messages(api.name, api.newRequest().getClass(), min, max);
            messages(api.name, api.newResponse().getClass(), min, max);
        }
        for (String name : dataMessages) {
            Class<?> type = dataClass(name);
            short min = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
            short max = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
            messages(name, type, min, max);
        }
        batches();
    }

    private static Class<?> dataClass(String name) throws ClassNotFoundException {
        for (String dataPackage : DATA_PACKAGES) {
            try {
                return Class.forName(dataPackage + name);
            } catch (ClassNotFoundException next) {
                // The name is in another package.
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static void messages(String group, Class<?> type, short min, short max) throws Exception {
        String name = type.getSimpleName();
        if (name.endsWith("RequestData") || name.endsWith("ResponseData")) {
            name = name.substring(0, name.length() - "Data".length());
        }
        for (short version = min; version <= max; version++) {
            Message message = (Message) type.getConstructor().newInstance();
            try {
                print(group, name, version, "default", message);
            } catch (NullPointerException noDefault) {
                // A default that is null where the version has no null: there are no bytes for it.
                System.out.printf("message %s %s %d default -%n", group, name, version);
            }
            for (int fixture = 0; fixture < RANDOM_FIXTURES; fixture++) {
                Random random = new Random((name + version).hashCode() * 31L + fixture);
                print(group, name, version, "random" + fixture, (Message) filled(type, version, random));
            }
        }
    }

    private static void print(String group, String name, short version, String fixture, Message message) {
        String hex = hex(MessageUtil.toByteBufferAccessor(message, version).buffer());
        System.out.printf("message %s %s %d %s %s%n", group, name, version, fixture, hex);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    // Fields are set as the version's own schema names them, so that no value is one that the version can't carry.
    private static Object filled(Class<?> type, short version, Random random) throws Exception {
        Object object = type.getConstructor().newInstance();
        Map<String, Method> setters = new HashMap<>();
        for (Method method : type.getMethods()) {
            if (method.getName().startsWith("set") && method.getParameterCount() == 1) {
                setters.put(method.getName().substring(3).toLowerCase(), method);
            }
        }
        Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                for (Field optional : tagged.fields().values()) {
                    if (random.nextInt(4) != 0) {
                        set(object, setters, optional, version, random);
                    }
                }
            } else {
                set(object, setters, field.def, version, random);
            }
        }
        return object;
    }

    private static void set(Object object, Map<String, Method> setters, Field field, short version, Random random)
            throws Exception {
        Method setter = setters.get(field.name.replace("_", "").toLowerCase());
        if (setter == null) {
            throw new IllegalStateException(object.getClass() + " has no setter for " + field.name);
        }
        setter.invoke(object, value(field.type, setter.getGenericParameterTypes()[0], version, random));
    }

    private static Object value(Type wire, java.lang.reflect.Type java, short version, Random random) throws Exception {
        if (wire.isNullable() && random.nextInt(4) == 0) {
            return null;
        }
        if (java instanceof ParameterizedType list) {
            List<Object> values = new ArrayList<>();
            for (int count = random.nextInt(4); count > 0; count--) {
                values.add(value(wire.arrayElementType().get(), list.getActualTypeArguments()[0], version, random));
            }
            return values;
        }
        Class<?> type = (Class<?>) java;
        if (ImplicitLinkedHashMultiCollection.class.isAssignableFrom(type)) {
            return collection(type, version, random);
        }
        if (Message.class.isAssignableFrom(type)) {
            return filled(type, version, random);
        }
        return scalar(wire, type, random);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object collection(Class<?> type, short version, Random random) throws Exception {
        ImplicitLinkedHashMultiCollection collection =
            (ImplicitLinkedHashMultiCollection) type.getConstructor().newInstance();
        Class<?> element = (Class<?>) ((ParameterizedType) type.getGenericSuperclass()).getActualTypeArguments()[0];
        for (int count = random.nextInt(4); count > 0; count--) {
            collection.mustAdd((ImplicitLinkedHashCollection.Element) filled(element, version, random));
        }
        return collection;
    }

    private static Object scalar(Type wire, Class<?> type, Random random) {
        if (type == boolean.class || type == Boolean.class) {
            return random.nextBoolean();
        } else if (type == byte.class || type == Byte.class) {
            return (byte) number(random);
        } else if (type == short.class || type == Short.class) {
            return (short) number(random);
        } else if (type == int.class || type == Integer.class) {
            return wire == Type.UINT16 ? (int) number(random) & 0xffff : (int) number(random);
        } else if (type == long.class || type == Long.class) {
            return number(random);
        } else if (type == double.class || type == Double.class) {
            return random.nextDouble() * 1000 - 500;
        } else if (type == String.class) {
            return text(random);
        } else if (type == Uuid.class) {
            return new Uuid(random.nextLong(), random.nextLong());
        } else if (type == byte[].class) {
            return bytes(random, 20);
        } else if (type == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes(random, 20));
        } else if (BaseRecords.class.isAssignableFrom(type)) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(random, 100)));
        }
        throw new IllegalStateException("no values for " + type);
    }

    private static long number(Random random) {
        return switch (random.nextInt(8)) {
            case 0 -> 0;
            case 1 -> -1;
            case 2 -> Long.MAX_VALUE;
            case 3 -> Long.MIN_VALUE;
            case 4 -> random.nextInt(100);
            default -> random.nextLong();
        };
    }

    private static byte[] bytes(Random random, int atMost) {
        byte[] bytes = new byte[random.nextInt(atMost + 1)];
        random.nextBytes(bytes);
        return bytes;
    }

    private static String text(Random random) {
        String letters = "abcxyz09.-_é漢🦀";
        int[] points = letters.codePoints().toArray();
        StringBuilder text = new StringBuilder();
        // Now and then longer than one byte of varint length can say.
        int length = random.nextInt(20) == 0 ? 150 : random.nextInt(10);
        for (int count = length; count > 0; count--) {
            text.appendCodePoint(points[random.nextInt(points.length)]);
        }
        return text.toString();
    }

    private static void batches() {
        SimpleRecord[] records = {
            new SimpleRecord(1_700_000_000_000L, utf8("key"), utf8("value"), new Header[] {
                new RecordHeader("trace", utf8("abc")), new RecordHeader("empty", null),
            }),
            new SimpleRecord(1_700_000_000_007L, null, utf8("x".repeat(100_000))),
            new SimpleRecord(1_700_000_000_003L, utf8("tombstone"), null),
        };
        Map<String, Compression> compressions = Map.of(
            "none", Compression.NONE, "gzip", Compression.gzip().build(), "snappy", Compression.snappy().build(),
            "lz4", Compression.lz4().build(), "zstd", Compression.zstd().build());
        compressions.entrySet().stream().sorted(Map.Entry.comparingByKey()).forEach(entry -> {
            MemoryRecords plain = MemoryRecords.withRecords(1000, entry.getValue(), 5, records);
            System.out.printf("batch %s %s%n", entry.getKey(), hex(plain.buffer()));
        });
        MemoryRecordsBuilder appended = MemoryRecords.builder(
            ByteBuffer.allocate(512), (byte) 2, Compression.NONE, TimestampType.LOG_APPEND_TIME, 7, 1_700_000_000_042L);
        appended.append(records[0]);
        System.out.printf("batch log-append-time %s%n", hex(appended.build().buffer()));
        MemoryRecords transactional =
            MemoryRecords.withTransactionalRecords(42, Compression.NONE, 9L, (short) 3, 17, 5, records[0], records[2]);
        System.out.printf("batch transactional %s%n", hex(transactional.buffer()));
        MemoryRecords marker = MemoryRecords.withEndTransactionMarker(
            50, 1_700_000_000_000L, 5, 9L, (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 11));
        System.out.printf("batch commit-marker %s%n", hex(marker.buffer()));
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
