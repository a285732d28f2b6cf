"""Load by librdkafka: produces numbered records to each partition of a topic, reads them as a group of two.

    librdkafka.py BOOTSTRAP TOPIC GROUP PARTITIONS RATE ACKS        (RATE: records a second and partition)

Each line of output says what a client was told: `a PARTITION NUMBER OFFSET` acknowledged, `c PARTITION OFFSET NUMBER` read (before it is
committed), `k PARTITION OFFSET` commit acknowledged, `e ...` an error, `x ...` what must never be. "stop" on standard input ends
producing ("flushed" when all is acknowledged); its end ends the program.
"""
import os, sys, threading, time
from confluent_kafka import Consumer, KafkaException, Producer

bootstrap, topic, group, partitions, rate, acks = sys.argv[1:]
partitions, rate = int(partitions), int(rate)
stop_producing, stop, lock = threading.Event(), threading.Event(), threading.Lock()
COMMON = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 4000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500,
          "topic.metadata.refresh.interval.ms": 5000}


def say(*lines):
    if lines:
        with lock:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()


def complain(error):
    say(("x fatal: " if error.fatal() else "e ") + str(error).replace("\n", " "))


def delivered(error, message):
    if error is not None:
        say(f"e not delivered: {error}")
    else:
        # Without an offset: a repetition that the broker had stored before and no longer knows.
        offset = message.offset()
        say(f"a {message.partition()} {int(message.key())} {-1 if offset is None else offset}")


def produce():
    producer = Producer({**COMMON, "acks": acks, "enable.idempotence": acks == "all", "linger.ms": 10, "message.timeout.ms": 900_000,
                         "retries": 1_000_000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 500, "queue.buffering.max.messages": 100_000, "error_cb": complain})
    sent, begin = [0] * partitions, time.monotonic()
    while not stop_producing.is_set():
        due = int((time.monotonic() - begin) * rate)
        for p in range(partitions):
            while sent[p] < due and len(producer) < 50_000:
                producer.produce(topic, b"v" * 100, str(sent[p]).encode(), partition=p, on_delivery=delivered)
                sent[p] += 1
            if sent[p] < due and len(producer) >= 50_000:  # an outage: don't make up for all of it
                begin = time.monotonic() - sent[p] / rate
        producer.poll(0.02)
    while producer.flush(1) and not stop.is_set():
        pass
    say("flushed")


def consume():
    consumer = Consumer({**COMMON, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000,
                         "heartbeat.interval.ms": 1000, "max.poll.interval.ms": 60_000, "error_cb": complain})
    consumer.subscribe([topic])
    committed_at = time.monotonic()
    while not stop.is_set():
        lines = []
        for message in consumer.consume(1000, 0.2):
            if message.error():
                complain(message.error())
            else:
                lines.append(f"c {message.partition()} {message.offset()} {int(message.key())}")
        say(*lines)
        if time.monotonic() - committed_at >= 1:
            committed_at = time.monotonic()
            try:
                for p in consumer.commit(asynchronous=False) or []:
                    say(f"e commit: {p.error}" if p.error else f"k {p.partition} {p.offset}")
            except KafkaException as e:
                if "NO_OFFSET" not in str(e):  # nothing read since the last commit
                    complain(e.args[0])
    consumer.close()


def to_the_end(work):
    try:
        work()
    except BaseException as e:  # a client that gives up must not do so in silence
        say(f"x {work.__name__} ended with {e!r}".replace("\n", " "))


threads = [threading.Thread(target=to_the_end, args=(f,), daemon=True) for f in (produce, consume, consume)]
for thread in threads:
    thread.start()
for line in sys.stdin:
    if line.strip() == "stop":
        stop_producing.set()
stop_producing.set()
stop.set()
for thread in threads:
    thread.join(5)
os._exit(0)  # librdkafka may still wait for a broker that is gone
