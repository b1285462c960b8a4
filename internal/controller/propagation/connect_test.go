package propagation

import (
	"testing"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// connected is a controller whose stations do not run.
func connected(tb testing.TB, hub client.Client, s *sources, o Options) *Controller {
	tb.Helper()
	if s == nil {
		s = newSources(nil, nil, discard)
	}
	c, err := connect(o, hubAccess{uid: theHub, client: hub, live: hub, recorder: &events.FakeRecorder{}, log: discard}, s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.members.Close)
	return c
}
