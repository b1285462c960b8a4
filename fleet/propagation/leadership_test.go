package propagation

import (
	"context"
	"testing"
)

// TestLeadershipEnds: when this replica no longer leads, the appliers are stopped, and the connections end after them.
func TestLeadershipEnds(t *testing.T) {
	c := connected(t, nil, nil, Options{Leadership: &replica{}})
	d := c.dispatcher
	ctx, stop := context.WithCancel(t.Context())
	r := runningApplier{applier: &applier{}, stop: stop, ended: make(chan struct{})}
	d.ctx, d.appliers["m"] = t.Context(), r
	d.clusterChanged("m")
	if ctx.Err() == nil {
		t.Error("want the context of the applier ended")
	}
	if _, ok := d.appliers["m"]; ok {
		t.Error("want no applier left")
	}
	close(r.ended)
	d.running.Wait()
}
