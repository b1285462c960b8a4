package member

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

func TestSetConditions(t *testing.T) {
	now, later := metav1.Unix(1, 0), metav1.Unix(2, 0)
	status := &corev1alpha1.FederatedClusterStatus{}
	states := func() map[string]string {
		m := map[string]string{}
		for _, c := range status.Conditions {
			m[string(c.Type)] = string(c.Status) + " " + c.Reason
		}
		return m
	}
	steps := []struct {
		reason  string
		health  health
		changed bool
		want    map[string]string
	}{
		{"A cluster that was never reached has not joined.", health{offline: true, reason: "Unreachable"}, true,
			map[string]string{"Joined": "False Unreachable", "Ready": "False Unreachable", "Offline": "True Unreachable"}},
		{"The API server answers.", health{ready: true, joined: true}, true,
			map[string]string{"Joined": "True Joined", "Ready": "True Ready", "Offline": "False Reachable", "Authorized": "True Authorized"}},
		{"Unchanged health does not change the status.", health{ready: true, joined: true}, false,
			map[string]string{"Joined": "True Joined", "Ready": "True Ready", "Offline": "False Reachable", "Authorized": "True Authorized"}},
		{"A right is missing.", health{ready: true, joined: true, lacking: "the credentials may not: patch secrets"}, true,
			map[string]string{"Joined": "True Joined", "Ready": "True Ready", "Offline": "False Reachable", "Authorized": "False PermissionMissing"}},
		{"An unreachable member is still joined, and the report about its rights stays.", health{offline: true, reason: "Unreachable"}, true,
			map[string]string{"Joined": "True Joined", "Ready": "False Unreachable", "Offline": "True Unreachable", "Authorized": "False PermissionMissing"}},
		{"The guard holds deletions back.", health{ready: true, joined: true, held: &corev1alpha1.DeletionsHeld{}, pending: "20 of 21"}, true,
			map[string]string{"Joined": "True Joined", "Ready": "True Ready", "Offline": "False Reachable", "Authorized": "True Authorized", "DeletionsHeld": "True AwaitingApproval"}},
		{"The deletions were approved.", health{ready: true, joined: true}, true,
			map[string]string{"Joined": "True Joined", "Ready": "True Ready", "Offline": "False Reachable", "Authorized": "True Authorized", "DeletionsHeld": "False NothingHeld"}},
		{"The cluster is leaving.", health{ready: true, joined: true, leaving: "copies on it that are still to be removed: 3"}, true,
			map[string]string{"Joined": "False Leaving", "Ready": "True Ready", "Offline": "False Reachable", "Authorized": "True Authorized", "DeletionsHeld": "False NothingHeld"}},
		{"Without credentials, the cluster counts as neither reachable nor offline.", health{reason: "SecretNotFound"}, true,
			map[string]string{"Joined": "False SecretNotFound", "Ready": "False SecretNotFound", "Offline": "Unknown SecretNotFound", "Authorized": "True Authorized", "DeletionsHeld": "False NothingHeld"}},
	}
	for i, s := range steps {
		at := now
		if i > 0 {
			at = later
		}
		if got := setConditions(status, s.health, at); got != s.changed {
			t.Errorf("step %d: %s\nsetConditions(): want %t, got %t", i, s.reason, s.changed, got)
		}
		if diff := cmp.Diff(s.want, states()); diff != "" {
			t.Errorf("step %d: %s\n-want, +got:\n%s", i, s.reason, diff)
		}
	}
	if !status.JoinPerformed {
		t.Error("setConditions(): want joinPerformed, as a cluster that was ready once may have copies")
	}
}

func TestJudge(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	expired := x509.CertificateInvalidError{Cert: &x509.Certificate{NotBefore: until.Add(-time.Hour), NotAfter: until}, Reason: x509.Expired}
	get := func(err error) error { return &url.Error{Op: "Get", URL: "https://h:1/readyz", Err: err} }
	cases := map[string]struct {
		reason  string
		err     error
		want    string
		offline bool
		message string
	}{
		"Ready":        {reason: "The API server answers that it is ready.", want: ""},
		"Unreachable":  {reason: "The local port differs in each attempt and must not be in the message.", err: get(errors.New("read tcp 10.0.0.1:40404->10.0.0.2:6443: connection reset by peer")), want: "Unreachable", offline: true, message: "reaching https://h:1: Get \"https://h:1/readyz\": read tcp 10.0.0.2:6443: connection reset by peer"},
		"Expired":      {reason: "The message must not contain the current time.", err: get(&tls.CertificateVerificationError{Err: expired}), want: "CertificateInvalid", message: "the certificate of https://h:1 is not accepted: it is valid from 2026-01-02T02:04:05Z to 2026-01-02T03:04:05Z"},
		"Unauthorized": {reason: "The API server rejects an expired certificate or token.", err: apierrors.NewUnauthorized("no"), want: "Unauthorized", message: "the API server does not accept the credentials, which may have expired: no"},
		"Forbidden":    {reason: "The API server accepts the credentials, which lack a permission.", err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")), want: "Forbidden"},
		"NotReady":     {reason: "A cluster whose API server answers is not offline.", err: apierrors.NewGenericServerResponse(http.StatusInternalServerError, "get", schema.GroupResource{}, "", "etcd", 0, true), want: "NotReady"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.err, "https://h:1")
			if got.reason != tc.want || got.offline != tc.offline || got.ready != (tc.err == nil) {
				t.Errorf("%s\njudge(): want reason %q, offline %t, got %+v", tc.reason, tc.want, tc.offline, got)
			}
			if tc.message != "" && got.message != tc.message {
				t.Errorf("%s\njudge(): want message %q, got %q", tc.reason, tc.message, got.message)
			}
		})
	}
}

func denied(verb, resource string) error {
	message := fmt.Sprintf(`%s "x" is forbidden: User "u" cannot %s resource "%s" in API group "" in the namespace "d"`, resource, verb, resource)
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}}
}

func TestRights(t *testing.T) {
	now := time.Unix(0, 0)
	r := &rights{now: func() time.Time { return now }}
	secrets, deployments := schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Group: "apps", Resource: "deployments"}
	patch := action{"patch", secrets, "d"}
	steps := []struct {
		reason string
		do     func()
		want   string
	}{
		{"No request was refused.", func() { r.note(patch, nil) }, ""},
		{"A denial by admission is no missing right.", func() {
			r.note(patch, apierrors.NewForbidden(secrets, "x", errors.New("exceeded quota")))
		}, ""},
		{"Refusals in two namespaces name one right.", func() {
			r.note(patch, denied("patch", "secrets"))
			r.note(action{"patch", secrets, "e"}, denied("patch", "secrets"))
		}, "the credentials may not: patch secrets"},
		{"An apply of a new object needs the right to create: the API server names the missing verb.", func() {
			r.note(action{"patch", deployments, "d"}, denied("create", "deployments"))
		}, "the credentials may not: create deployments.apps; patch secrets"},
		{"The answer that the object is not found shows that the right exists.", func() {
			get := action{"get", secrets, "d"}
			r.note(get, denied("get", "secrets"))
			r.note(get, apierrors.NewNotFound(secrets, "x"))
		}, "the credentials may not: create deployments.apps; patch secrets"},
		{"The same request has succeeded.", func() { r.note(patch, nil); r.note(action{"patch", secrets, "e"}, nil) }, "the credentials may not: create deployments.apps"},
		{"An access review shows that the right was granted.", func() { r.granted(action{"create", deployments, "d"}) }, ""},
		{"A right without a recent request is no longer needed.", func() {
			r.note(patch, denied("patch", "secrets"))
			now = now.Add(rightsWanted + time.Second)
		}, ""},
		{"The length of a condition is bounded.", func() {
			for i := range 100 {
				r.note(action{"patch", schema.GroupResource{Resource: fmt.Sprintf("r%03d", i)}, ""}, denied("patch", "x"))
			}
		}, "; and 54 more"},
	}
	for i, s := range steps {
		s.do()
		got := r.describe()
		if (s.want == "" && got != "") || !strings.HasSuffix(got, s.want) {
			t.Errorf("step %d: %s\ndescribe(): want %q, got %q", i, s.reason, s.want, got)
		}
	}
}

// TestVerbsAreWords: when a member refuses a request, a verb from its message is kept, and any other text in the position
// of the verb is not.
func TestVerbsAreWords(t *testing.T) {
	r := &rights{now: time.Now}
	r.note(action{}, denied(strings.Repeat("x", 33), "y"))
	if len(r.missing) != 0 {
		t.Error("above the bound: want the text ignored")
	}
	r.note(action{}, denied(strings.Repeat("x", 32), "y"))
	if len(r.missing) != 1 {
		t.Error("at the bound: want the verb kept")
	}
}
