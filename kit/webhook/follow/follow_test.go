package follow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// wait waits for a value of the channel.
func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("Waiting until %s", what)
	}
}

func TestObject(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	ctx, cancel := context.WithCancel(t.Context())
	looked, also, ended := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		do := func(context.Context) error {
			looked <- struct{}{}
			return nil
		}
		Object(ctx, c, &corev1.SecretList{}, client.ObjectKey{Namespace: "pizza", Name: "webhook"}, logr.Discard(), do, also, nil)
	}()
	wait(t, "it looks at once", looked)
	also <- struct{}{}
	wait(t, "it looks when it is told to", looked)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "pizza", Name: "webhook"}}
	if err := c.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	wait(t, "it looks when the object is there", looked)
	if err := c.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	wait(t, "it looks when the object is gone", looked)
	cancel()
	wait(t, "it ends", ended)
}

// TestErrorsAreLoggedOnce: a repeated error is logged once. A different error is logged again.
func TestErrorsAreLoggedOnce(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	tries := 0
	do := func(context.Context) error {
		tries++
		switch {
		case tries <= 2:
			return errors.New("no oven")
		case tries == 3:
			return errors.New("no dough")
		}
		cancel()
		return nil
	}
	Object(ctx, c, &corev1.SecretList{}, client.ObjectKey{Namespace: "pizza", Name: "webhook"}, log, do)
	mu.Lock()
	defer mu.Unlock()
	if tries != 4 || len(lines) != 2 || !strings.Contains(lines[0], "no oven") || !strings.Contains(lines[1], "no dough") {
		t.Errorf("got %d calls and the log %q, want 4 calls and one line for each error", tries, lines)
	}
}

func TestSignal(t *testing.T) {
	var s Signal
	s.Send() // There are no listeners.
	one, other := s.Listen(), s.Listen()
	s.Send()
	s.Send()
	for _, c := range []<-chan struct{}{one, other} {
		wait(t, "each listener is notified", c)
		select {
		case <-c:
			t.Error("Two signals must be merged until a listener receives them.")
		default:
		}
	}
}
