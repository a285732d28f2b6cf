"""Writes the records of a file (key TAB value, one a line) to a topic, or reads a topic to its end.

    records.py produce BOOTSTRAP TOPIC CODEC FILE
    records.py consume BOOTSTRAP TOPIC GROUP|-

Prints one JSON line. The checksum is the sum modulo 2^64 of crc32(key, 0, value) over all records, so that it does
not depend on the order of partitions; offsets must be without gaps and keys must rise within each partition.
"""
import json, sys, time, zlib
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


def produce(bootstrap, topic, codec, file):
    failed = []
    p = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "acks": "all", "queue.buffering.max.messages": 200_000})

    def delivered(err, _):
        if err is not None:
            failed.append(str(err))

    n = 0
    with open(file, "rb") as lines:
        for line in lines:
            key, value = line.rstrip(b"\n").split(b"\t", 1)
            while True:
                try:
                    p.produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    p.poll(0.1)
            n += 1
            if n % 1000 == 0:
                p.poll(0)
    left = p.flush(120)
    if failed or left:
        sys.exit(f"{len(failed)} records failed, {left} unsent: {failed[:1]}")
    return {"records": n}


class Seen:
    """What has been read: counts, checksum, and the last offset and key of each partition."""

    def __init__(self):
        self.records, self.sum, self.last = 0, 0, {}

    def add(self, partition, offset, key, value):
        before = self.last.get(partition, (-1, -1))
        number = int(key)
        if offset != before[0] + 1 or number <= before[1]:
            sys.exit(f"partition {partition}: offset {offset} key {number} after offset and key {before}")
        self.last[partition] = (offset, number)
        self.sum += zlib.crc32(value, zlib.crc32(b"\0", zlib.crc32(key)))
        self.records += 1


def consume(bootstrap, topic, group):
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused" if group == "-" else group, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    parts = c.list_topics(topic, timeout=30).topics[topic].partitions
    end = {p: c.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in parts}
    if group == "-":
        c.assign([TopicPartition(topic, p, 0) for p in parts])
    else:
        c.subscribe([topic])
    seen, idle = Seen(), time.monotonic()
    while any(seen.last.get(p, (-1, -1))[0] + 1 < e for p, e in end.items()):
        batch = c.consume(10_000, 0.5)
        if batch:
            idle = time.monotonic()
        elif time.monotonic() - idle > 60:
            sys.exit(f"no record for 60 s, at {seen.records}")
        for m in batch:
            if m.error():
                raise KafkaException(m.error())
            seen.add(m.partition(), m.offset(), m.key(), m.value())
    if group != "-":
        c.commit(asynchronous=False)
    c.close()
    return {"records": seen.records, "checksum": f"{seen.sum % 2**64:x}"}


if __name__ == "__main__":
    print(json.dumps({"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])))
