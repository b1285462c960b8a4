package propagation

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fakeHub is a hub as the stations reach it.
type fakeHub struct{ client.Client }

func (h fakeHub) GetClient() client.Client                     { return h.Client }
func (h fakeHub) GetAPIReader() client.Reader                  { return h.Client }
func (h fakeHub) GetLogger() logr.Logger                       { return discard }
func (h fakeHub) GetEventRecorder(string) events.EventRecorder { return events.NewFakeRecorder(0) }

// connected is a controller whose stations do not run.
func connected(tb testing.TB, hub client.Client, s *sources, o Options) *Controller {
	tb.Helper()
	if s == nil {
		s = newSources(nil, nil, discard)
	}
	c, err := connect(o, theHub, fakeHub{hub}, s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.members.Close)
	return c
}
