package bounded

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"refract.dev/kit/webhook/admission"
)

// TestHandler: the limit that the handler tells the server is 8 MiB.
func TestHandler(t *testing.T) {
	limited, ok := Handler(nil).(interface{ MaxBytes() int64 })
	if !ok || limited.MaxBytes() != 8<<20 {
		t.Errorf("want a handler of at most 8 MiB, got %v", limited)
	}
}

// TestRead: only a limited number of reviews is read at the same time. A review with too many values is not read.
func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(10)
		var mu sync.Mutex
		reading, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			reading += n
			most = max(most, reading)
		}
		for range 20 {
			go func() {
				err := r.Read(t.Context(), &admission.Request{Namespace: "shop", Object: []byte(`{"a":1}`)}, func() error {
					count(1)
					defer count(-1)
					<-time.After(time.Second)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, ErrTooLong)
		defer cancel()
		never := func() error { t.Error("This is not to be read"); return nil }
		if err := r.Read(ctx, &admission.Request{Namespace: "bank"}, never); codeOf(err) != http.StatusServiceUnavailable ||
			!strings.HasSuffix(err.Error(), "it takes too long: try again") {
			t.Errorf("Without a turn: got %v", err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if most != atOnce {
			t.Errorf("want %d to be read at a time, got %d", atOnce, most)
		}
		many := []byte("[" + strings.Repeat("0,", 10) + "0]")
		if err := r.Read(t.Context(), &admission.Request{OldObject: many}, never); codeOf(err) != http.StatusRequestEntityTooLarge {
			t.Errorf("With too many values: got %v", err)
		}
		want := errors.New("no")
		if err := r.Read(t.Context(), &admission.Request{}, func() error { return want }); !errors.Is(err, want) {
			t.Errorf("The error of what is done: got %v", err)
		}
	})
}

func codeOf(err error) int32 {
	known := apierrors.APIStatus(nil)
	if !errors.As(err, &known) {
		return 0
	}
	return known.Status().Code
}
