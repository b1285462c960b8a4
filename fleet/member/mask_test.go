package member

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// password and pin are values of a Secret; pin is a number.
const (
	password = `hunter2-"quoted"`
	pin      = 48151623
)

// spelled returns the spellings of a value that a member may use.
func spelled() map[string]string {
	escaped := func(text string) string {
		quoted := strconv.Quote(text)
		return quoted[1 : len(quoted)-1]
	}
	return map[string]string{
		"Plain":         password,
		"Base64":        base64.StdEncoding.EncodeToString([]byte(password)),
		"Quoted":        strconv.Quote(password),
		"EscapedTwice":  escaped(escaped(password)),
		"UnicodeEscape": `\u0068\u0075\u006e\u0074\u0065\u0072\u0032`,
		"Halves":        password[:6],
	}
}

// echoes returns answers of API servers, and of proxies in front of them, with the value in each field that can have
// text.
func echoes(value string) map[string]http.HandlerFunc {
	status := func(s metav1.Status) http.HandlerFunc {
		s.TypeMeta, s.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
		text, err := json.Marshal(s)
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if s.Code < 400 || s.Code > 599 {
				w.WriteHeader(http.StatusInternalServerError)
			} else {
				w.WriteHeader(int(s.Code))
			}
			if err == nil {
				_, err = w.Write(text)
			}
		}
	}
	text := func(code int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	details := &metav1.StatusDetails{Name: value, Kind: value, Group: value, Causes: []metav1.StatusCause{
		{Type: metav1.CauseType(value), Field: value, Message: value}, {Field: "data", Message: value + " is immutable"},
	}}
	return map[string]http.HandlerFunc{
		"Invalid":       status(metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "data: Invalid value: " + value, Details: details}),
		"BadRequest":    status(metav1.Status{Code: 400, Reason: metav1.StatusReasonBadRequest, Message: `json: cannot unmarshal "` + value + `"`, Details: details}),
		"Denied":        status(metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: `admission webhook "x" denied the request: ` + value}),
		"DeniedMissing": status(metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: `admission webhook "x" denied the request: ` + value}),
		"Webhook":       status(metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: `Internal error occurred: failed calling webhook "` + value + `": ` + value}),
		"Conversion":    status(metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "conversion webhook for " + value}),
		"Right":         status(metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: `secrets is forbidden: User "` + value + `" cannot patch resource "secrets": ` + value}),
		"RightAsValue":  status(metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: `secrets is forbidden: User "x" cannot hunter resource "secrets"`}),
		"Quota":         status(metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: `secrets "x" is forbidden: exceeded quota: ` + value + `, requested: secrets=1, used: ` + value, Details: details}),
		"Storage":       status(metav1.Status{Code: 500, Message: "etcdserver: request is too large " + value}),
		"Reason":        status(metav1.Status{Code: 500, Reason: metav1.StatusReason(value)}),
		"Code":          status(metav1.Status{Code: pin, Message: "pin"}),
		"Conflict":      status(metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Message: value, Details: details}),
		"NotFound":      status(metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: value, Details: details}),
		"Terminating":   status(metav1.Status{Code: 403, Message: value, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Message: value}}}}),
		"Text":          text(500, "text/plain", value),
		"Success":       text(200, "text/plain", value),
		"Broken":        text(200, "application/json", `{"kind":"`+value),
		"Kind":          text(200, "application/json", `{"kind":`+strconv.Quote(value)+`,"apiVersion":`+strconv.Quote(value)+`,"metadata":{"name":1}}`),
		"Other":         text(200, "application/json", `{"kind":`+strconv.Quote(value)+`,"apiVersion":"v1","metadata":{}}`),
		"Redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+base64.RawURLEncoding.EncodeToString([]byte(value))+".example.com/"+value, http.StatusFound)
		},
		"Event": text(200, "application/json", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":500,"message":`+strconv.Quote(value)+`}}`),
		"BrokenEvent": text(200, "application/json", `{"type":`+strconv.Quote(value)+`,"object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":`+
			strconv.Quote(value)+`,"generation":`+strconv.Quote(value)+`}}}`),
	}
}

// requestsFor returns the requests for objects of a type, by name.
func requestsFor(m *Member, gvr schema.GroupVersionResource, name types.NamespacedName) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"apply": func(ctx context.Context) error { return m.Copies.Apply(ctx, gvr, name, []byte(`{}`)) },
		"patch": func(ctx context.Context) error { return m.Objects.Patch(ctx, gvr, name, []byte(`{}`)) },
		"delete": func(ctx context.Context) error {
			_, err := m.api.delete(ctx, gvr, name, metav1.Preconditions{})
			return err
		},
		"read": func(ctx context.Context) error {
			have, err := m.Objects.Read(ctx, gvr, name)
			if err == nil && have.Fault != "" {
				return errors.New(have.Fault)
			}
			return err
		},
		"readWhole": func(ctx context.Context) error { _, err := m.Objects.ReadWhole(ctx, gvr, name); return err },
		"list": func(ctx context.Context) error {
			_, err := m.api.list(ctx, gvr, metav1.ListOptions{Limit: 1})
			return err
		},
		"watch":      watcher[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]{m.api.metadata, gvr}.watch,
		"watchWhole": watcher[*received, *receivedList]{m.api.whole, gvr}.watch,
	}
}

// watcher watches a type until the first error event.
type watcher[O metav1.Object, L runtime.Object] struct {
	by  *objectsClient[O, L]
	gvr schema.GroupVersionResource
}

// watch returns the first error.
func (w watcher[O, L]) watch(ctx context.Context) error {
	events, err := w.by.watch(ctx, w.gvr, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		if err := apierrors.FromObject(e.Object); e.Type == "ERROR" {
			text, failed := json.Marshal(e.Object)
			return errors.Join(err, errors.New(string(text)), failed)
		}
	}
	return nil
}

// TestAnswersAboutSecretsAreMasked: no error has any text of a member's answer about Secrets. Status messages, events
// and logs are made from errors.
func TestAnswersAboutSecretsAreMasked(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	name := types.NamespacedName{Namespace: "shop", Name: "db"}
	var mu sync.Mutex
	var answer http.HandlerFunc
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		answer(w, r)
	})
	shown := 0
	for spelling, value := range spelled() {
		for kind, echo := range echoes(value) {
			mu.Lock()
			answer = echo
			mu.Unlock()
			for request, do := range requestsFor(m, secrets, name) {
				err := do(t.Context())
				var said apierrors.APIStatus
				text := fmt.Sprintf("%v %+v", err, err)
				if errors.As(err, &said) {
					s, failed := json.Marshal(said.Status())
					text += string(s) + fmt.Sprint(failed)
				}
				for _, leak := range []string{value, "hunter", strconv.Itoa(pin)} {
					if err != nil && strings.Contains(text, leak) {
						t.Errorf("%s of %s, answered %s: the error has the value: %s", request, spelling, kind, text)
					}
				}
			}
			for _, do := range requestsFor(m, configMaps, name) {
				if err := do(t.Context()); err != nil && strings.Contains(err.Error(), value) {
					shown++
				}
			}
		}
	}
	if shown == 0 {
		t.Error("want the answers about other types shown")
	}
}

// TestMaskedErrorsAreTold: masked errors are classified like the original errors.
func TestMaskedErrorsAreTold(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	of := func(s metav1.Status) error { return &apierrors.StatusError{ErrStatus: s} }
	cases := map[string]struct {
		err  error
		want func(error) bool
	}{
		"Right": {
			apierrors.NewForbidden(secrets, "db", errors.New(`User "u" cannot create resource "secrets" in API group "" in the namespace "shop"`)),
			func(err error) bool { verb, missing := MissingRight(err); return verb == "create" && missing },
		},
		"Denied": {
			apierrors.NewForbidden(secrets, "db", errors.New("no")),
			func(err error) bool { _, missing := MissingRight(err); return apierrors.IsForbidden(err) && !missing },
		},
		"Terminating": {
			of(metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}},
			}}),
			func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) },
		},
		"Conflict": {apierrors.NewConflict(secrets, "db", errors.New("changed")), apierrors.IsConflict},
		"Gone":     {apierrors.NewResourceExpired("old"), apierrors.IsResourceExpired},
		"Timeout":  {apierrors.NewServerTimeout(secrets, "patch", 1), OutcomeUnknown},
		"Lost":     {errors.New("connection lost"), OutcomeUnknown},
		"Canceled": {fmt.Errorf("patch: %w", context.Canceled), func(err error) bool { return errors.Is(err, context.Canceled) && !ConcernsAll(err) }},
		"Limit":    {&LimitError{}, isLimit},
		"Namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), func(err error) bool {
			var said apierrors.APIStatus
			return apierrors.IsNotFound(err) && errors.As(err, &said) && said.Status().Details.Kind == "namespaces"
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if !tc.want(tc.err) {
				t.Fatalf("the original error does not match: %v", tc.err)
			}
			if got := masked(secrets, nil, tc.err); !tc.want(got) {
				t.Errorf("want the same classification as before, got %v", got)
			}
		})
	}
}

// TestReadinessOfSecretsIsMasked: a Secret has no status, but a member may send one.
func TestReadinessOfSecretsIsMasked(t *testing.T) {
	r := object(t, `{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"shop","name":"db"},`+
		`"status":{"conditions":[{"type":"Stalled","status":"True","reason":"No","message":"hunter2"}]}}`)
	for _, tc := range []struct {
		resource string
		want     bool
	}{{"secrets", false}, {"configmaps", true}} {
		e := decoder{account: roomy}.copyEventOf(r, schema.GroupResource{Resource: tc.resource})
		if e == nil || e.Readiness == refractv1alpha1.ReadinessReady || strings.Contains(e.ReadinessMessage, "hunter2") != tc.want {
			t.Errorf("%s: want the message shown: %t, got %+v", tc.resource, tc.want, e)
		}
	}
}

// TestMaskedWatchEnds: a watch is stopped while an event waits. No goroutine may remain.
func TestMaskedWatchEnds(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		from := watch.NewFakeWithChanSize(2, false)
		w := maskedWatch(corev1.Resource("secrets"), from)
		from.Modify(&corev1.Secret{})
		from.Modify(&corev1.Secret{})
		synctest.Wait()
		w.Stop()
	})
}
