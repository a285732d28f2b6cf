// Latency at a steady rate with franz-go: produce to consume and produce to acknowledge, counted from when each record was due,
// so that a stall counts for every record behind it.
//
//	latency BOOTSTRAP TOPIC PARTITIONS RATE RECORD_BYTES SECONDS [FETCH_MIN_BYTES FETCH_MAX_WAIT_MS]
//
// The topic is there; the consumer fetches as the client does by default if nothing is said of it. Records go round the partitions, acks=all, no linger; the first SECONDS/4 are not counted. Prints one line of JSON.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

// percentile is the nearest rank of sorted nanoseconds, in milliseconds.
func percentile(sorted []int64, q float64) float64 {
	rank := int(q / 100 * float64(len(sorted)))
	return float64(sorted[min(rank, len(sorted)-1)]) / 1e6
}

type run struct {
	began                time.Time
	consumed, acked      []int64
	received, failed     atomic.Int64
	partitions, bytes, n int
}

func (r *run) now() int64 { return int64(time.Since(r.began)) }

func (r *run) consume(ctx context.Context, client *kgo.Client, done chan<- struct{}) {
	defer close(done)
	for r.received.Load() < int64(r.n) {
		fetches := client.PollFetches(ctx)
		if fetches.Err() != nil {
			return
		}
		now := r.now()
		fetches.EachRecord(func(record *kgo.Record) {
			r.consumed[binary.BigEndian.Uint64(record.Value[8:])] = now - int64(binary.BigEndian.Uint64(record.Value))
			r.received.Add(1)
		})
	}
}

func (r *run) produce(ctx context.Context, client *kgo.Client, rate int) {
	step, start := int64(time.Second)/int64(rate), r.now()+int64(50*time.Millisecond)
	for i := range r.n {
		due := start + int64(i)*step
		if wait := due - r.now(); wait > 0 {
			time.Sleep(time.Duration(wait))
		}
		value := make([]byte, r.bytes)
		binary.BigEndian.PutUint64(value, uint64(due))
		binary.BigEndian.PutUint64(value[8:], uint64(i))
		client.Produce(ctx, &kgo.Record{Value: value, Partition: int32(i % r.partitions)}, func(_ *kgo.Record, err error) {
			if err != nil {
				r.failed.Add(1)
			}
			r.acked[i] = r.now() - due
		})
	}
	check(client.Flush(ctx))
}

func main() {
	if len(os.Args) != 7 && len(os.Args) != 9 {
		fmt.Fprintln(os.Stderr, "latency BOOTSTRAP TOPIC PARTITIONS RATE RECORD_BYTES SECONDS [FETCH_MIN_BYTES FETCH_MAX_WAIT_MS]")
		os.Exit(2)
	}
	seeds, topic := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), os.Args[2]
	partitions, rate, bytes, seconds := number(os.Args[3]), number(os.Args[4]), number(os.Args[5]), number(os.Args[6])
	n := rate * seconds
	r := run{began: time.Now(), consumed: make([]int64, n), acked: make([]int64, n), partitions: partitions, bytes: max(bytes, 16), n: n}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+60)*time.Second)
	defer cancel()
	consume := []kgo.Opt{seeds, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if len(os.Args) == 9 {
		wait := time.Duration(number(os.Args[8])) * time.Millisecond
		consume = append(consume, kgo.FetchMinBytes(int32(number(os.Args[7]))), kgo.FetchMaxWait(wait), kgo.FetchMaxPartitionBytes(1<<20))
	}
	consumer, err := kgo.NewClient(consume...)
	check(err)
	producer, err := kgo.NewClient(seeds, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(100_000),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	check(err)
	done := make(chan struct{})
	go r.consume(ctx, consumer, done)
	time.Sleep(500 * time.Millisecond)
	r.produce(ctx, producer, rate)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
	}
	consumed, acked := slices.Clone(r.consumed[n/4:]), slices.Clone(r.acked[n/4:])
	slices.Sort(consumed)
	slices.Sort(acked)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"received": r.received.Load(), "failed": r.failed.Load(),
		"e2e_p50_ms": percentile(consumed, 50), "e2e_p99_ms": percentile(consumed, 99), "e2e_p999_ms": percentile(consumed, 99.9),
		"ack_p50_ms": percentile(acked, 50), "ack_p99_ms": percentile(acked, 99), "ack_p999_ms": percentile(acked, 99.9),
	}))
}
