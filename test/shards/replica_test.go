//go:build unix

package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"refract.dev/fleet/sharding"
)

const (
	replicaVariable   = "REFRACT_TEST_REPLICA"   // The identity: this process is a replica then.
	namespaceVariable = "REFRACT_TEST_NAMESPACE" // Where its Lease is.
	leaseVariable     = "REFRACT_TEST_LEASE"     // How long that lasts.
	members           = 9
)

// An event is a line that a replica writes.
type event struct {
	// At is the time of the machine's clock, in nanoseconds.
	At int64 `json:"at"`
	// Member is what was written to, since Began until At. It is "" if this event
	// says how things are.
	Member string `json:"member,omitempty"`
	Began  int64  `json:"began,omitempty"`
	Owned  int    `json:"owned,omitempty"`
	Leads  bool   `json:"leads,omitempty"`
}

func names() []string {
	out := make([]string, 0, members)
	for i := range members {
		out = append(out, fmt.Sprintf("member-%d", i))
	}
	return out
}

// replicate is a replica: it takes part until it is told to end, and pretends to
// write to what it owns without a pause.
func replicate(identity string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	cfg.QPS = -1
	duration, err := time.ParseDuration(os.Getenv(leaseVariable))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(e); err != nil {
			fmt.Fprintln(os.Stderr, "the test is gone:", err)
		}
	}
	var s *sharding.Shards
	s, err = sharding.New(sharding.Options{
		Leases: client.CoordinationV1(), Namespace: os.Getenv(namespaceVariable), Identity: identity, LeaseDuration: duration,
		Log: funcr.New(func(prefix, args string) {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.StampMicro), identity, prefix, args)
		}, funcr.Options{}),
	})
	if err != nil {
		return err
	}
	s.SetMembers(names())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	life, end := context.WithCancel(context.Background())
	var working sync.WaitGroup
	for _, m := range names() {
		working.Go(func() { work(life, s, m, say) })
	}
	working.Go(func() {
		for pause(life, 10*time.Millisecond) {
			say(event{At: time.Now().UnixNano(), Owned: s.Owned(), Leads: s.Leads()})
		}
	})
	err = s.Run(ctx)
	end()
	working.Wait()
	return err
}

// work pretends to write to one member.
func work(ctx context.Context, s *sharding.Shards, member string, say func(event)) {
	for pause(ctx, 2*time.Millisecond) {
		writing, end, ok := s.Begin(ctx, member)
		if !ok {
			continue
		}
		began := time.Now()
		pause(writing, 5*time.Millisecond)
		say(event{At: time.Now().UnixNano(), Member: member, Began: began.UnixNano()})
		end()
	}
}

// pause lets time pass, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
