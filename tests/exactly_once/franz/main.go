// Copies a topic in transactions by franz-go; see clients.py.
//
// Usage: franz BOOTSTRAP NAME DIRECTORY SEED
package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap, name := os.Args[1], os.Args[2]
	seed := fnv.New64a()
	seed.Write([]byte(os.Args[4]))
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ClientID(name),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(10*time.Second),
		kgo.DefaultProduceTopic("target"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup("copiers"),
		kgo.ConsumeTopics("source"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(3*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
	)
	if err != nil {
		log.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed.Sum64(), 0))
	for {
		fetches := session.PollRecords(context.Background(), 20)
		if fetches.NumRecords() > 0 {
			transact(session, fetches, random.IntN(10) == 0)
		}
	}
}

// transact copies records in a transaction. After an abort, the session returns to its
// committed offsets.
func transact(session *kgo.GroupTransactSession, fetches kgo.Fetches, isAborted bool) {
	ctx := context.Background()
	if err := session.Begin(); err != nil {
		log.Fatal(err)
	}
	produced := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		value := fmt.Sprintf("%d %d %s", record.Partition, record.Offset, record.Value)
		if isAborted {
			value = "aborted " + value
		}
		made := &kgo.Record{Partition: record.Partition, Value: []byte(value)}
		session.Produce(ctx, made, produced.Promise())
	})
	if err := produced.Err(); err != nil {
		log.Printf("aborted: %v", err)
		isAborted = true
	}
	if _, err := session.End(ctx, kgo.TransactionEndTry(!isAborted)); err != nil {
		log.Fatal(err)
	}
}
