// Writes the records of a file (key TAB value, one a line) to a topic, or reads a topic to its end.
//
//	compat produce BOOTSTRAP TOPIC CODEC FILE
//	compat consume BOOTSTRAP TOPIC GROUP|-
//
// Prints one JSON line. The checksum is the sum modulo 2^64 of crc32(key, 0, value) over all records, so that it does
// not depend on the order of partitions; offsets must be without gaps and keys must rise within each partition.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "none":
		return kgo.NoCompression()
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	check(fmt.Errorf("unknown codec %s", name))
	return kgo.NoCompression()
}

func produce(bootstrap, topic, codecName, file string) map[string]any {
	ctx := context.Background()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(codec(codecName)), kgo.ProducerLinger(5*time.Millisecond))
	check(err)
	defer cl.Close()
	f, err := os.Open(file)
	check(err)
	defer f.Close()
	lines, n := bufio.NewScanner(f), 0
	var failed atomic.Pointer[error]
	for lines.Scan() {
		key, value, _ := bytes.Cut(bytes.Clone(lines.Bytes()), []byte{'\t'})
		cl.Produce(ctx, &kgo.Record{Key: key, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
		n++
	}
	check(lines.Err())
	check(cl.Flush(ctx))
	if e := failed.Load(); e != nil {
		check(*e)
	}
	return map[string]any{"records": n}
}

// endOffsets asks each partition's end, through the client so that it goes to the leader.
func endOffsets(ctx context.Context, cl *kgo.Client, topic string) map[int32]int64 {
	meta := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	meta.Topics = append(meta.Topics, asked)
	m, err := meta.RequestWith(ctx, cl)
	check(err)
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for _, p := range m.Topics[0].Partitions {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p.Partition, -1
		t.Partitions = append(t.Partitions, part)
	}
	list.Topics = append(list.Topics, t)
	end := map[int32]int64{}
	for _, shard := range cl.RequestSharded(ctx, list) {
		check(shard.Err)
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					check(fmt.Errorf("list offsets of partition %d: error %d", p.Partition, p.ErrorCode))
				}
				end[p.Partition] = p.Offset
			}
		}
	}
	return end
}

func consume(bootstrap, topic, group string) map[string]any {
	ctx := context.Background()
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if group != "-" {
		options = append(options, kgo.ConsumerGroup(group), kgo.DisableAutoCommit())
	}
	cl, err := kgo.NewClient(options...)
	check(err)
	defer cl.Close()
	end := endOffsets(ctx, cl, topic)
	type position struct{ offset, key int64 }
	last := map[int32]position{}
	for p, e := range end {
		last[p] = position{-1, -1}
		if e == 0 {
			delete(end, p)
		}
	}
	var n, sum uint64
	for len(end) > 0 {
		wait, cancel := context.WithTimeout(ctx, 60*time.Second)
		fetches := cl.PollFetches(wait)
		cancel()
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			key, err := strconv.ParseInt(string(r.Key), 10, 64)
			check(err)
			if before := last[r.Partition]; r.Offset != before.offset+1 || key <= before.key {
				check(fmt.Errorf("partition %d: offset %d key %d after %v", r.Partition, r.Offset, key, before))
			}
			last[r.Partition] = position{r.Offset, key}
			if r.Offset+1 >= end[r.Partition] {
				delete(end, r.Partition)
			}
			crc := crc32.ChecksumIEEE(r.Key)
			crc = crc32.Update(crc, crc32.IEEETable, []byte{0})
			sum += uint64(crc32.Update(crc, crc32.IEEETable, r.Value))
			n++
		})
	}
	if group != "-" {
		check(cl.CommitUncommittedOffsets(ctx))
	}
	return map[string]any{"records": n, "checksum": fmt.Sprintf("%x", sum)}
}

func main() {
	a := os.Args[1:]
	if len(a) < 4 {
		check(fmt.Errorf("usage: compat produce BOOTSTRAP TOPIC CODEC FILE | consume BOOTSTRAP TOPIC GROUP"))
	}
	var out map[string]any
	if a[0] == "produce" {
		out = produce(a[1], a[2], a[3], a[4])
	} else {
		out = consume(a[1], a[2], a[3])
	}
	check(json.NewEncoder(os.Stdout).Encode(out))
}
