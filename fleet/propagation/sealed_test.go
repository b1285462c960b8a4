package propagation

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
)

// echoing is an API server whose answers repeat the content of Secrets.
type echoing struct {
	*depot

	answer metav1.Status
}

func (e *echoing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch {
	case !strings.Contains(r.URL.Path, "/secrets"):
		e.depot.ServeHTTP(w, r)
	case query.Get("sendInitialEvents") != "":
		e.fail(w, metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case query.Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/api/v1/secrets":
		e.reply(w, http.StatusOK, metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}})
	default:
		e.change(func() { e.fail(w, e.answer) })
	}
}

// TestSecretsInAnswers: whatever a member answers to the write of a Secret, neither the status of the copy nor the
// log contains its content.
func TestSecretsInAnswers(t *testing.T) {
	const value = "aHVudGVyMg=="
	details := &metav1.StatusDetails{Name: value, Causes: []metav1.StatusCause{{Field: value, Message: value}, {Field: "data", Message: "field is immutable: " + value}}}
	cases := map[string]struct {
		code    int32
		reason  metav1.StatusReason
		message string
		want    string // Part of the message in the status.
	}{
		"Invalid":  {422, metav1.StatusReasonInvalid, "data: Invalid value: ", "its data cannot change"},
		"Bad":      {400, metav1.StatusReasonBadRequest, "illegal base64 ", "refused the request about Secrets with status 400"},
		"Denied":   {403, metav1.StatusReasonForbidden, `admission webhook "w" denied the request: `, "denied"},
		"Webhook":  {500, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "w": `, "failed calling webhook"},
		"Internal": {500, metav1.StatusReasonInternalError, "", "status 500"},
		"Quota":    {403, metav1.StatusReasonForbidden, `secrets "x" is forbidden: exceeded quota: q, requested: secrets=1, used: `, "allows no more secrets"},
		"Conflict": {409, metav1.StatusReasonConflict, "", "status 409"},
		"NotFound": {404, metav1.StatusReasonNotFound, `admission webhook "w" denied the request: `, "denied"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &echoing{newDepot(), metav1.Status{Code: tc.code, Reason: tc.reason, Message: tc.message + value, Details: details}}
			a := shopkeeper(t, d, 0, onHub(nil))
			var mu sync.Mutex
			var log strings.Builder
			a.log = funcr.New(func(prefix, args string) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintln(&log, prefix, args)
			}, funcr.Options{Verbosity: 5})
			e := &neighbours{state: a.state}
			a.stations, a.cluster = e, e
			<-a.member.Copies.Watch(secrets)
			key := keyOf("secrets", "db")
			s := around(t, "", false, nil)
			s.hub, s.clusters = theHub, []placement.Cluster{{Cluster: match.Cluster{Name: "m"}, Ready: true}}
			obj := sourceObject("v1", "Secret", "db", "pp")
			obj.Object["data"] = map[string]any{"password": value}
			p := decide(source{gvr: secrets, kind: "Secret", object: obj}, previous{uid: "1"}, s)
			a.state.setDesired(key, p, previous{}, nil)
			_, err := a.applyOne(t.Context(), key)
			r, _ := a.state.clusterStatus(key, "m")
			if !strings.Contains(r.message, tc.want) {
				t.Errorf("want %q in the message, got %q, %q", tc.want, r.reason, r.message)
			}
			mu.Lock()
			defer mu.Unlock()
			for place, text := range map[string]string{"status": r.reason + r.message, "result": fmt.Sprint(err), "log": log.String(), "stations": fmt.Sprint(e.said)} {
				if strings.Contains(text, value) {
					t.Errorf("the %s has the value: %s", place, text)
				}
			}
		})
	}
}
