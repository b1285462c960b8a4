package propagation

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientrest "k8s.io/client-go/rest"
)

// TestTypeThatMayNotBeListed: a type that the account may not list is skipped. Its list and the decisions about its
// objects are retried rarely. The sources are complete without the type.
func TestTypeThatMayNotBeListed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	}))
	t.Cleanup(server.Close)
	dyn, err := dynamic.NewForConfig(&clientrest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := newSources(dyn, nil, discard)
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	if got := s.again(secrets.GroupResource()); got > time.Second {
		t.Errorf("want an early retry before the missing right is known, got %s", got)
	}
	v := s.viewOf(secrets.GroupResource())
	if err := s.reflector(secrets, "", v, func() {}).ListAndWatchWithContext(t.Context()); err == nil {
		t.Fatal("want an error")
	}
	if !s.unlisted(secrets.GroupResource()) || !v.asked() {
		t.Error("want the type skipped")
	}
	if got := s.again(secrets.GroupResource()); got < 10*time.Second {
		t.Errorf("want rare retries, got %s", got)
	}
	s.listed(secrets.GroupResource())
	if s.unlisted(secrets.GroupResource()) {
		t.Error("want a granted right noticed")
	}
}

// TestFollowersThatMayNotBeListed: a workload reports the followers that cannot be read for lack of a right.
func TestFollowersThatMayNotBeListed(t *testing.T) {
	for name, tc := range map[string]struct {
		unlisted string
		want     int
	}{"Unlisted": {"secrets", 1}, "Listed": {"configmaps", 0}} {
		t.Run(name, func(t *testing.T) {
			s := around(t, "", false, nil)
			s.unlisted = func(of schema.GroupResource) bool { return of.Resource == tc.unlisted }
			p := &desiredState{followers: map[Key][]string{}}
			for _, name := range []string{"db", "cache"} {
				key := Key{GroupResource: corev1.Resource("secrets")}
				key.Namespace, key.Name = metav1.NamespaceDefault, name
				p.followers[key] = []string{"eu-1"}
			}
			p.warnUnlisted(s)
			if got := len(p.warnings); got != tc.want {
				t.Fatalf("want %d warnings, got %q", tc.want, p.warnings)
			}
			if tc.want > 0 && !slices.ContainsFunc(p.warnings, func(w string) bool { return strings.HasPrefix(w, "secrets cache, db does not travel") }) {
				t.Errorf("want both named, got %q", p.warnings)
			}
		})
	}
}
