package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/internal/poll"
)

func serverError(code int, message string) error {
	return apierrors.NewGenericServerResponse(code, "patch", schema.GroupResource{Resource: "configmaps"}, "x", message, 0, true)
}

// statusError is an error from an API server.
func statusError(code int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Message: message,
	}}
}

func TestConcernsAll(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Unreachable":  {"Without an answer, all other writes would fail, too.", errors.New("connection refused"), true},
		"Timeout":      {"A timeout counts like a lost connection.", context.DeadlineExceeded, true},
		"Canceled":     {"Refract canceled the request.", context.Canceled, false},
		"Unauthorized": {"All writes have the same credentials.", apierrors.NewUnauthorized("no"), true},
		"TooMany":      {"The API server is overloaded.", serverError(http.StatusTooManyRequests, "later"), true},
		"StorageFull":  {"No object can be written.", serverError(http.StatusInternalServerError, "etcdserver: mvcc: database space exceeded"), true},
		"Broken":       {"The error may concern only one type.", serverError(http.StatusServiceUnavailable, "later"), false},
		"TooLarge":     {"Smaller objects can be written.", serverError(http.StatusInternalServerError, "etcdserver: request is too large"), false},
		"Webhook":      {"A webhook concerns some types; objects of other types can be written.", serverError(http.StatusInternalServerError, `failed calling webhook "x"`), false},
		"Denied":       {"A webhook chooses its status code.", statusError(http.StatusTooManyRequests, `admission webhook "x" denied the request: later`), false},
		"DeniedToAll":  {"The status code of a webhook does not matter.", statusError(http.StatusUnauthorized, `admission webhook "x" denied the request`), false},
		"Policy":       {"An admission policy denies one object.", statusError(http.StatusUnauthorized, `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), false},
		"Quoted": {
			"An API server quotes duplicate list items.",
			statusError(http.StatusInternalServerError, `failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): .env: duplicate entries for key [name="etcdserver: no leader"]`), false,
		},
		"QuotedElsewhere": {"Errors of etcd are not quoted.", statusError(http.StatusInternalServerError, `cannot convert "etcdserver: no leader"`), false},
		"OfStorage":       {"The API server passes on the error of etcd.", statusError(http.StatusInternalServerError, "Internal error occurred: rpc error: code = Unavailable desc = etcdserver: no leader"), true},
		"Invalid":         {"Only this object is invalid.", serverError(http.StatusUnprocessableEntity, "no"), false},
		"Conflict":        {"A conflict concerns one object.", serverError(http.StatusConflict, "no"), false},
		"Forbidden":       {"A missing right concerns one type.", serverError(http.StatusForbidden, "no"), false},
		"NotFound":        {"A missing object or type concerns only itself.", serverError(http.StatusNotFound, "no"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ConcernsAll(tc.err); got != tc.want {
				t.Errorf("%s\nConcernsAll(%v): want %t, got %t", tc.reason, tc.err, tc.want, got)
			}
			if hidden := masked(schema.GroupResource{Resource: "secrets"}, nil, tc.err); ConcernsAll(hidden) != tc.want {
				t.Errorf("%s\nConcernsAll(%v): want the same result for an answer about a Secret", tc.reason, hidden)
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
		"Done":        {"The API server answered.", nil, false},
		"Timeout":     {"The request was sent, and may still be carried out.", context.DeadlineExceeded, true},
		"Canceled":    {"The request was sent before Refract canceled it.", context.Canceled, true},
		"Reset":       {"The connection was lost with the answer.", &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true},
		"Unreachable": {"Nothing was sent.", fmt.Errorf("patch: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}), false},
		"TooLarge":    {"The API server answered, but the answer is too large.", &LimitError{}, false},
		"GaveUp":      {"The API server gave up waiting for its storage.", serverError(http.StatusGatewayTimeout, "timeout"), true},
		"GivesUp":     {"The API server gave up with another reason.", apierrors.NewServerTimeout(schema.GroupResource{Resource: "configmaps"}, "patch", 1), true},
		"StorageFull": {"The API server rejected the request.", serverError(http.StatusInternalServerError, "etcdserver: mvcc: database space exceeded"), false},
		"Webhook":     {"Webhooks run before the object is stored.", serverError(http.StatusInternalServerError, `failed calling webhook "x"`), false},
		"Unavailable": {"The API server did not accept the request.", serverError(http.StatusServiceUnavailable, "later"), false},
		"TooMany":     {"The API server did not accept the request.", serverError(http.StatusTooManyRequests, "later"), false},
		"Conflict":    {"The API server rejected the request because of a conflict.", serverError(http.StatusConflict, "no"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := OutcomeUnknown(tc.err); got != tc.want {
				t.Errorf("%s\nOutcomeUnknown(%v): want %t, got %t", tc.reason, tc.err, tc.want, got)
			}
		})
	}
}

// shut is a breaker with a fake clock. It records the checks and the changes of the breaker.
type shut struct {
	*breaker

	at     time.Time
	asked  int
	states []bool
}

func newShut() *shut {
	s := &shut{at: time.Unix(0, 0)}
	s.breaker = &breaker{
		now: func() time.Time { return s.at }, opened: func(is bool) { s.states = append(s.states, is) }, ask: func() { s.asked++ },
	}
	return s
}

// letting returns how many of 50 callers may continue.
func (s *shut) letting() (n int) {
	for range 50 {
		if s.pause() == 0 {
			n++
		}
	}
	return n
}

func TestBreaker(t *testing.T) {
	b, at := newShut(), writeScope{"shop", configMaps.GroupResource()}
	down, refused := errors.New("connection refused"), serverError(http.StatusConflict, "no")
	about := func(d, want time.Duration) bool { return d >= want*3/5 && d <= want*7/5 }

	for range breakerTrips - 1 {
		b.note(at, down)
	}
	b.note(at, refused)
	if d := b.pause(); d != 0 {
		t.Errorf("pause(): want no wait before enough writes failed, got %v", d)
	}
	b.note(at, down)
	if d := b.pause(); !about(d, firstPause) {
		t.Errorf("pause(): want about %v, got %v", firstPause, d)
	}
	b.at = b.at.Add(2 * firstPause)
	if n := b.letting(); n != 0 || b.asked != 1 {
		t.Errorf("pause(): want one check of the member and no write after the pause, got %d, %d writes", b.asked, n)
	}
	b.answered(errors.New("not ready"))
	if d := b.pause(); !about(d, 2*firstPause) || b.asked != 1 {
		t.Errorf("pause(): want about %v after the answer that the member is not ready, got %v", 2*firstPause, d)
	}
	b.at = b.at.Add(4 * firstPause)
	b.letting()
	b.answered(nil)
	if n := b.letting(); n != breakerTries || b.asked != 2 {
		t.Errorf("pause(): want %d writes to try after the answer that the member is ready, got %d", breakerTries, n)
	}
	b.note(at, refused)
	if n := b.letting(); n != 1 {
		t.Errorf("pause(): want one more try after a refusal, which does not show whether the member is healthy: got %d", n)
	}
	b.note(at, down)
	if d := b.pause(); !about(d, 4*firstPause) {
		t.Errorf("pause(): want about %v after a failed try, got %v", 4*firstPause, d)
	}
	for range 100 {
		b.note(at, down)
	}
	if d := b.pause(); !about(d, 4*firstPause) {
		t.Errorf("pause(): want about %v: writes that began before the breaker opened do not count, got %v", 4*firstPause, d)
	}
	for range 100 {
		b.at = b.at.Add(2 * lastPause)
		b.note(at, down)
	}
	if d := b.pause(); !about(d, lastPause) {
		t.Errorf("pause(): want at most about %v, got %v", lastPause, d)
	}
	b.at = b.at.Add(2 * lastPause)
	b.letting()
	b.at = b.at.Add(2 * requestTimeout)
	if asked := b.asked; b.letting() != 0 || b.asked != asked+1 {
		t.Error("pause(): want an end of the wait for a check without an answer")
	}
	b.answered(nil)
	b.letting()
	b.at = b.at.Add(2 * requestTimeout)
	if asked := b.asked; b.letting() != 0 || b.asked != asked+1 {
		t.Error("pause(): want an end of the wait for tries that were not made")
	}
	b.answered(nil)
	b.note(at, nil)
	if n := b.letting(); n != 50 {
		t.Errorf("pause(): want no wait after a success, got %d", n)
	}
	if len(b.states) != 2 || !b.states[0] || b.states[1] {
		t.Errorf("opened: want [true false], got %v", b.states)
	}
}

// TestBreakerOfOneType: any number of failures of objects, types, webhooks and namespaces delays no other writes. After
// failures of several types and namespaces the member is checked. All writes wait if the member is not healthy.
func TestBreakerOfOneType(t *testing.T) {
	unavailable, broken := serverError(http.StatusServiceUnavailable, "later"), serverError(http.StatusInternalServerError, "no")
	late := apierrors.NewTimeoutError("late", 1)
	cases := map[string]struct {
		errs       []error
		types      int
		namespaces int
		apart      time.Duration
		want       bool // Whether other writes wait.
		asks       bool // Whether the member is checked.
	}{
		"TooLarge": {[]error{
			serverError(http.StatusInternalServerError, "etcdserver: request is too large"),
			serverError(http.StatusInternalServerError, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097300 vs. 2097152)"),
			apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
			&SizeError{MostSent + 1},
		}, 10, 10, 0, false, false},
		"Type":      {[]error{unavailable, late, broken}, 1, 50, 0, false, false},
		"Namespace": {[]error{unavailable, late, broken}, 50, 1, 0, false, false},
		"Webhook":   {[]error{serverError(http.StatusInternalServerError, `failed calling webhook "x"`)}, 10, 10, 0, false, false},
		"All":       {[]error{broken}, 2, 2, 0, false, true},
		"Rare":      {[]error{broken}, 2, 2, placesFor + time.Second, false, false},
		"Storage":   {[]error{serverError(http.StatusInternalServerError, "etcdserver: mvcc: database space exceeded")}, 1, 1, 0, true, false},
		"Patience":  {[]error{serverError(http.StatusTooManyRequests, "later")}, 1, 1, 0, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newShut()
			for i := range 1000 {
				b.note(writeScope{fmt.Sprint(i / tc.types % tc.namespaces), schema.GroupResource{Resource: fmt.Sprint(i % tc.types)}}, tc.errs[i%len(tc.errs)])
				b.at = b.at.Add(tc.apart)
			}
			if got := b.pause() > 0; got != tc.want || (b.asked > 0) != tc.asks {
				t.Errorf("want other writes to wait: %t, and the member checked: %t; got %t, %d checks", tc.want, tc.asks, got, b.asked)
			}
			if tc.asks {
				b.answered(errors.New("not well"))
			}
			if got := b.pause() > 0; got != (tc.want || tc.asks) {
				t.Errorf("the member is not healthy: want other writes to wait: %t, got %t", tc.want || tc.asks, got)
			}
			if len(b.places.all) > mostPlaces {
				t.Errorf("want a bounded number of scopes, got %d", len(b.places.all))
			}
		})
	}
}

// TestBreakerOfAllTypes: writes of copies of any types and namespaces fail. A member that also refuses the dry run of
// the check gets few writes. A member that accepts the dry run is checked seldom, and no write waits.
func TestBreakerOfAllTypes(t *testing.T) {
	for _, well := range []bool{true, false} {
		b, writes, waits := newShut(), 0, 0
		for end := b.at.Add(time.Minute); b.at.Before(end); b.at = b.at.Add(10 * time.Millisecond) {
			asked := b.asked
			for i := range 20 {
				if b.pause() > 0 {
					waits++
					continue
				}
				writes++
				b.note(writeScope{fmt.Sprint(i % 3), schema.GroupResource{Resource: fmt.Sprint(i % 5)}}, serverError(http.StatusInternalServerError, "no"))
			}
			switch {
			case b.asked == asked:
			case well:
				b.answered(nil)
			default:
				b.answered(errors.New("no"))
			}
		}
		switch {
		case well && (waits > 0 || len(b.states) > 0 || b.asked > int(time.Minute/doubtPause)+1 || b.asked < 2):
			t.Errorf("the member is healthy: want no write to wait, and few checks, got %d of %d, %d checks", waits, writes, b.asked)
		case !well && (writes > 20 || b.asked > 12 || len(b.states) != 1):
			t.Errorf("the member is not healthy: want at most 20 writes in a minute, and few checks, got %d, %d", writes, b.asked)
		}
	}
}

// TestBreakerIsBesideTheCopies: the answers of a member about copies of one tenant do not delay the writes of others.
func TestBreakerIsBesideTheCopies(t *testing.T) {
	b, at, broken := newShut(), writeScope{"shop", configMaps.GroupResource()}, serverError(http.StatusInternalServerError, "no")
	fail := func() {
		for i := range breakerTrips {
			b.note(writeScope{fmt.Sprint(i), schema.GroupResource{Resource: fmt.Sprint(i)}}, broken)
		}
	}
	fail()
	b.note(at, nil)
	b.answered(errors.New("not well"))
	if d := b.pause(); d != 0 {
		t.Errorf("a copy was written during the check: want no wait, got %v", d)
	}
	for range breakerTrips {
		b.note(at, errors.New("connection refused"))
	}
	b.at = b.at.Add(2 * firstPause)
	b.letting()
	b.answered(nil)
	for range 10 * breakerTries {
		if b.letting() == 0 {
			t.Fatal("the member is healthy again: want the tries not used up by copies with errors of their own")
		}
		fail()
	}
	b.note(at, nil)
	if d := b.pause(); d != 0 {
		t.Errorf("a copy was written: want no wait, got %v", d)
	}
}

// TestExamine: a dry run shows whether a member accepts writes.
func TestExamine(t *testing.T) {
	cases := map[string]struct {
		err  error
		want bool
	}{
		"Exists":    {apierrors.NewAlreadyExists(schema.GroupResource{Resource: "namespaces"}, "kube-system"), true},
		"Forbidden": {denied("create", "namespaces"), true},
		"Denied":    {statusError(http.StatusBadRequest, `admission webhook "x" does not support dry run`), true},
		"Webhook":   {statusError(http.StatusInternalServerError, `Internal error occurred: failed calling webhook "x": down`), true},
		"Broken":    {statusError(http.StatusInternalServerError, "no"), false},
		"Storage":   {statusError(http.StatusInternalServerError, "etcdserver: no leader"), false},
		"Later":     {statusError(http.StatusTooManyRequests, "later"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.refuse["POST namespaces"] = tc.err
			m := connect(t, s)
			if err := m.api.request(t.Context(), m.api.examine); (err == nil) != tc.want {
				t.Errorf("want the member healthy: %t, got %v", tc.want, err)
			}
			if s.count("POST namespaces") != 1 {
				t.Error("want one write")
			}
		})
	}
}

// TestTenantFailsEverywhere: all copies of a tenant with two namespaces and two types fail, and other copies are
// written.
func TestTenantFailsEverywhere(t *testing.T) {
	custom := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	s := newStub(t)
	s.refuse["PATCH widgets"], s.refuse["PATCH secrets"] = statusError(http.StatusInternalServerError, "no"), statusError(http.StatusInternalServerError, "no")
	m := connect(t, s)
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	for i := range 50 {
		for _, gvr := range []schema.GroupVersionResource{custom, secrets} {
			if err := m.Copies.Apply(t.Context(), gvr, types.NamespacedName{Namespace: fmt.Sprint("n", i%2), Name: "x"}, []byte(`{}`)); !ConcernsType(err) {
				t.Fatalf("want a failure, got %v", err)
			}
			if d := m.Pause(); d != 0 {
				t.Fatalf("after %d failed writes of one tenant: want no wait for others, got %s", i, d)
			}
		}
	}
	poll.Until(t, "the member is checked", func() bool { return s.count("POST namespaces") > 0 })
	s.set(func() {
		s.refuse["POST namespaces"] = statusError(http.StatusInternalServerError, "no")
	})
	m.api.breaker.now = func() time.Time { return time.Now().Add(time.Minute) }
	for i := range breakerTrips {
		gvr := []schema.GroupVersionResource{custom, secrets}[i%2]
		if err := m.Copies.Apply(t.Context(), gvr, types.NamespacedName{Namespace: fmt.Sprint("n", i%2), Name: "x"}, []byte(`{}`)); err == nil {
			t.Fatal("want a failure")
		}
	}
	poll.Until(t, "all writes wait, because the member accepts none", func() bool { return m.Pause() > 0 })
}

// TestSize: objects that cannot be stored are not sent.
func TestSize(t *testing.T) {
	quoted := func(n int, with string) []byte { return []byte(`{"a":"` + strings.Repeat(with, n) + `"}`) }
	cases := map[string]struct {
		body []byte
		want bool
	}{
		"Most":      {quoted(MostSent-8, "x"), true},
		"More":      {quoted(MostSent-7, "x"), false},
		"Lines":     {quoted(1<<20, `\n`), true}, // A ConfigMap of empty lines.
		"Escaped":   {quoted(1<<20, `\u0001`), true},
		"Backslash": {quoted(MostSent-8, `\\`), true},
		"MoreLines": {quoted(MostSent-7, `\n`), false},
		"Cut":       {append(quoted(MostSent, "x"), '\\'), false},
		"Short":     {append(quoted(MostSent, "x"), `\u`...), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := CheckSize(tc.body); (err == nil) != tc.want {
				t.Errorf("want the object sent: %t, got %v", tc.want, err)
			}
			for _, at := range []int{0, 1, 9} {
				if err := CheckSize(tc.body[:at], tc.body[at:]); at != 9 && (err == nil) != tc.want {
					t.Errorf("as separate objects: want them sent: %t, got %v", tc.want, err)
				}
			}
		})
	}
	s := newStub(t)
	m := connect(t, s)
	err := m.Copies.Apply(t.Context(), configMaps, webName, quoted(2<<20, "x"))
	if !errors.As(err, new(*SizeError)) || s.count("PATCH configmaps") != 0 || ConcernsAll(err) || ConcernsType(err) || OutcomeUnknown(err) {
		t.Errorf("want the object not sent, and an error that concerns no other object, got %v", err)
	}
}

// FuzzConcern: an error of a member concerns either all objects, one type or one object. Masking its text does not
// change that.
func FuzzConcern(f *testing.F) {
	for _, words := range slices.Concat(storageWords, tooLarge) {
		f.Add(int32(500), "InternalError", words)
	}
	f.Add(int32(503), "ServiceUnavailable", `Internal error occurred: failed calling webhook "x"`)
	f.Fuzz(func(t *testing.T, code int32, reason, message string) {
		err := error(&apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: metav1.StatusReason(reason), Message: message}})
		if ConcernsAll(err) && ConcernsType(err) {
			t.Errorf("%d %q: want either ConcernsAll or ConcernsType", code, message)
		}
		b := newShut()
		for i := range 100 {
			b.note(writeScope{fmt.Sprint(i), schema.GroupResource{Resource: "configmaps"}}, err)
		}
		if b.pause() > 0 != ConcernsAll(err) {
			t.Errorf("%d %q: want no wait for other types", code, message)
		}
		hidden := masked(schema.GroupResource{Resource: "secrets"}, nil, err)
		if isTooLarge(message) && code >= 400 && code < 600 && ConcernsType(hidden) {
			t.Errorf("%d %q: want the masked error classified like the original, got %v", code, message, hidden)
		}
	})
}
