package propagation

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"refract.dev/internal/member"
)

// others are shards of which this replica owns none.
type others struct{ members []string }

func (*others) Leads() bool      { return false }
func (*others) Owns(string) bool { return false }
func (*others) Begin(ctx context.Context, _ string) (context.Context, func(), bool) {
	return ctx, func() {}, false
}
func (o *others) SetMembers(names []string) { o.members = names }

// TestMemberChangesHands has another replica get a member: the applier is told to end, and
// what waits for that knows what to wait for.
func TestMemberChangesHands(t *testing.T) {
	placement, err := newWorkQueue("placement", 1, discard, func(context.Context, struct{}) (reconcile.Result, error) { return reconcile.Result{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	a := &applier{stop: stop, ended: make(chan struct{})}
	c := &Controller{
		ctx: t.Context(), shards: &others{}, state: newState(), placement: placement, log: discard,
		members: &member.Set{}, appliers: map[string]*applier{"m": a},
	}
	c.clusterChanged("m")
	if ctx.Err() == nil {
		t.Error("want the applier told to end")
	}
	if _, ok := c.appliers["m"]; ok {
		t.Error("want no applier any more")
	}
	close(a.ended)
	c.running.Wait()
}
