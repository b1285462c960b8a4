package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func serverError(code int, message string) error {
	return apierrors.NewGenericServerResponse(code, "patch", schema.GroupResource{Resource: "configmaps"}, "x", message, 0, true)
}

func TestConcernsAll(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Unreachable":  {"Without an answer nothing else will get one.", errors.New("connection refused"), true},
		"Timeout":      {"The same.", context.DeadlineExceeded, true},
		"Canceled":     {"It was us who lost interest.", context.Canceled, false},
		"Unauthorized": {"The credentials are those of all writes.", apierrors.NewUnauthorized("no"), true},
		"TooMany":      {"An overloaded API server needs a rest.", serverError(http.StatusTooManyRequests, "later"), true},
		"StorageFull":  {"No object can be written.", serverError(http.StatusInternalServerError, "etcdserver: mvcc: database space exceeded"), true},
		"Webhook":      {"A webhook is there for some types; the others can be written.", serverError(http.StatusInternalServerError, `failed calling webhook "x"`), false},
		"Invalid":      {"This object is wrong, others are not.", serverError(http.StatusUnprocessableEntity, "no"), false},
		"Conflict":     {"The same.", serverError(http.StatusConflict, "no"), false},
		"Forbidden":    {"The same.", serverError(http.StatusForbidden, "no"), false},
		"NotFound":     {"The same.", serverError(http.StatusNotFound, "no"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ConcernsAll(tc.err); got != tc.want {
				t.Errorf("%s\nConcernsAll(%v): want %t, got %t", tc.reason, tc.err, tc.want, got)
			}
		})
	}
}

func TestOutcomeUnknown(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Done":        {"It was answered.", nil, false},
		"Timeout":     {"It was sent, and may be under way still.", context.DeadlineExceeded, true},
		"Canceled":    {"The same: it was us who lost interest.", context.Canceled, true},
		"Reset":       {"The connection was lost with the answer.", &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true},
		"Unreachable": {"Nothing was sent.", fmt.Errorf("patch: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}), false},
		"TooLarge":    {"It was answered, with more than is read.", &LimitError{}, false},
		"GaveUp":      {"The API server has not waited for what stores it.", serverError(http.StatusGatewayTimeout, "timeout"), true},
		"GivesUp":     {"The same.", apierrors.NewServerTimeout(schema.GroupResource{Resource: "configmaps"}, "patch", 1), true},
		"StorageFull": {"It was refused.", serverError(http.StatusInternalServerError, "etcdserver: mvcc: database space exceeded"), false},
		"Webhook":     {"It was asked before anything is stored.", serverError(http.StatusInternalServerError, `failed calling webhook "x"`), false},
		"Unavailable": {"It was not taken.", serverError(http.StatusServiceUnavailable, "later"), false},
		"TooMany":     {"It was not taken.", serverError(http.StatusTooManyRequests, "later"), false},
		"Conflict":    {"It was refused.", serverError(http.StatusConflict, "no"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := OutcomeUnknown(tc.err); got != tc.want {
				t.Errorf("%s\nOutcomeUnknown(%v): want %t, got %t", tc.reason, tc.err, tc.want, got)
			}
		})
	}
}

func TestBreaker(t *testing.T) {
	now := time.Unix(0, 0)
	var states []bool
	b := &breaker{now: func() time.Time { return now }, opened: func(is bool) { states = append(states, is) }}
	down, refused := errors.New("connection refused"), serverError(http.StatusConflict, "no")
	about := func(d, want time.Duration) bool { return d >= want*3/5 && d <= want*7/5 }

	for range breakerTrips - 1 {
		b.note(down)
	}
	b.note(refused)
	if d := b.pause(); d != 0 {
		t.Errorf("pause(): before enough writes failed all go on: got %v", d)
	}
	b.note(down)
	if d := b.pause(); !about(d, firstPause) {
		t.Errorf("pause(): want about %v, got %v", firstPause, d)
	}
	now = now.Add(2 * firstPause)
	if d := b.pause(); d != 0 {
		t.Errorf("pause(): when the time is over one may try: got %v", d)
	}
	if d := b.pause(); d == 0 {
		t.Error("pause(): while one tries the others wait")
	}
	b.note(refused)
	if d := b.pause(); d != 0 {
		t.Errorf("pause(): a refusal leaves open whether the member is well, so that the next may try: got %v", d)
	}
	b.note(down)
	if d := b.pause(); !about(d, 2*firstPause) {
		t.Errorf("pause(): want about %v after a try that failed, got %v", 2*firstPause, d)
	}
	for range 100 {
		b.note(down)
	}
	if d := b.pause(); !about(d, 2*firstPause) {
		t.Errorf("pause(): writes that were under way say no more than the one that tried: want about %v, got %v", 2*firstPause, d)
	}
	for range 100 {
		now = now.Add(2 * lastPause)
		b.note(down)
	}
	if d := b.pause(); !about(d, lastPause) {
		t.Errorf("pause(): want at most about %v, got %v", lastPause, d)
	}
	now = now.Add(2 * lastPause)
	if d := b.pause(); d != 0 {
		t.Errorf("pause(): got %v", d)
	}
	now = now.Add(2 * requestTimeout)
	if d := b.pause(); d != 0 {
		t.Errorf("pause(): one who was to try and did not must not block the others for ever: got %v", d)
	}
	b.note(nil)
	if d := b.pause(); d != 0 {
		t.Errorf("pause(): after a success all go on: got %v", d)
	}
	if len(states) != 2 || !states[0] || states[1] {
		t.Errorf("opened: want [true false], got %v", states)
	}
}
