"""A steady producer with acks=all (librdkafka), until its standard input ends.

    failover.py BOOTSTRAP TOPIC RECORDS_A_SECOND [PROPERTY=VALUE]...

Prints `g BEGIN END` for every time of at least 5 ms without an acknowledgement, `a TIME COUNT` ten times a second, and `e ERROR` for each
record that failed. Times are milliseconds since 1970, with decimals.
"""
import os, sys, threading, time
from confluent_kafka import Producer

bootstrap, topic, rate, *properties = sys.argv[1:]
config = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "message.timeout.ms": 300_000, "error_cb": lambda e: None}
config.update(p.split("=", 1) for p in properties)
producer, value, step = Producer(config), b"v" * 1000, 1 / int(rate)
last = told = count = 0


def acknowledged(error, _):
    global last, told, count
    now = time.time() * 1e3
    if error is not None:
        print(f"e {error}", flush=True)
    else:
        count += 1
        if last and now - last >= 5:
            print(f"g {last:.3f} {now:.3f}", flush=True)
        last = now
    if now - told >= 100:
        print(f"a {last:.3f} {count}", flush=True)
        told = now


def end():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end, daemon=True).start()
begin, sent = time.monotonic(), 0
while True:
    due = int((time.monotonic() - begin) / step)
    while sent < due:
        try:
            producer.produce(topic, value, partition=0, on_delivery=acknowledged)
            sent += 1
        except BufferError:
            producer.poll(0.01)
    producer.poll(0.001)
