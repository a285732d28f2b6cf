"""Creates topics: topics.py BOOTSTRAP PARTITIONS NAME..."""
import sys
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, partitions, *names = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": bootstrap})
for future in admin.create_topics([NewTopic(n, int(partitions), 1) for n in names], operation_timeout=30).values():
    future.result()
