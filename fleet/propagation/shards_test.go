package propagation

import (
	"context"
	"sync"
	"testing"
)

// others are shards without one for this replica.
type others struct {
	mu      sync.Mutex
	members []string
}

func (*others) Leads() bool      { return false }
func (*others) Owns(string) bool { return false }
func (*others) Begin(ctx context.Context, _ string) (context.Context, func(), bool) {
	return ctx, func() {}, false
}
func (o *others) SetMembers(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.members = names
}

// TestMemberChangesHands: when another replica gets a member, the applier is stopped, and the hand-over can wait for
// its end.
func TestMemberChangesHands(t *testing.T) {
	c := connected(t, nil, nil, Options{Shards: &others{}})
	d := c.dispatcher
	ctx, stop := context.WithCancel(t.Context())
	r := runningApplier{applier: &applier{}, stop: stop, ended: make(chan struct{})}
	d.ctx, d.appliers["m"] = t.Context(), r
	d.clusterChanged("m")
	if ctx.Err() == nil {
		t.Error("want the applier told to end")
	}
	if _, ok := d.appliers["m"]; ok {
		t.Error("want no applier any more")
	}
	close(r.ended)
	d.running.Wait()
}
