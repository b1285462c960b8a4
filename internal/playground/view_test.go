package playground

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestAttachToNothing tests the errors of Attach for folders without a running playground.
func TestAttachToNothing(t *testing.T) {
	cases := map[string]struct {
		reason string
		setup  func(t *testing.T, dir string) error
		want   error // Nil if any error is accepted.
	}{
		"NoFolder": {
			reason: "No playground runs in an empty folder.",
			setup:  func(*testing.T, string) error { return nil },
			want:   ErrNotRunning,
		},
		"LeftOver": {
			reason: "Files alone prove nothing while the lock is not held.",
			setup: func(t *testing.T, dir string) error {
				t.Helper()
				h := mustClaim(t, dir)
				return errors.Join(h.record(State{Ready: true, Dir: dir, Hub: Cluster{Name: "hub"}}), h.lock.release())
			},
			want: ErrNotRunning,
		},
		"Beginning": {
			reason: "While the playground starts, its ports are unknown.",
			setup: func(t *testing.T, dir string) error {
				t.Helper()
				h := mustClaim(t, dir)
				t.Cleanup(func() { _ = h.lock.release() })
				return h.record(State{Dir: dir, Hub: Cluster{Name: "hub"}})
			},
			want: ErrNotRunning,
		},
		"Robbed": {
			reason: "A running playground without its certificates cannot be attached, and the error is not ErrNotRunning.",
			setup: func(t *testing.T, dir string) error {
				t.Helper()
				h := mustClaim(t, dir)
				t.Cleanup(func() { _ = h.lock.release() })
				return h.record(State{Ready: true, Dir: dir, Hub: Cluster{Name: "hub"}})
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "playground")
			if err := tc.setup(t, dir); err != nil {
				t.Fatal(err)
			}
			v, err := Attach(t.Context(), dir)
			if v != nil || err == nil || errors.Is(err, ErrNotRunning) != (tc.want != nil) {
				t.Errorf("\n%s\nAttach(...): want the error %v, got %v, %v", tc.reason, tc.want, v, err)
			}
		})
	}
}

// wantSameView checks that another process gets a view with the same clusters. It returns this view.
func wantSameView(t *testing.T, p *Playground, dir string) *View {
	t.Helper()
	v, err := Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Hub(), v.Hub()); diff != "" {
		t.Errorf("Hub(): -the playground, +another process:\n%s", diff)
	}
	if diff := cmp.Diff(p.Members(), v.Members()); diff != "" {
		t.Errorf("Members(): -the playground, +another process:\n%s", diff)
	}
	for _, c := range append(p.Members(), p.Hub()) {
		want, err := p.AuditLog(c.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.AuditLog(c.Name); err != nil || got != want {
			t.Errorf("AuditLog(%q): want %q, got %q, %v", c.Name, want, got, err)
		}
	}
	if _, err := v.AuditLog("member-99"); err == nil {
		t.Error("AuditLog(...): want an error for a cluster that is not there")
	}
	return v
}

// wantKnown checks that the cluster accepts a client certificate from the view as its user.
func wantKnown(t *testing.T, v *View, of Cluster) {
	t.Helper()
	cert, key, err := v.ClientCertificate(of.Name, "jane", []string{"cooks", "waiters"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", of.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.CertData, cfg.KeyData = cert, key
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := review.Status.UserInfo
	slices.Sort(user.Groups)
	if diff := cmp.Diff([]string{"cooks", "system:authenticated", "waiters"}, user.Groups); user.Username != "jane" || diff != "" {
		t.Errorf("The API server must know jane and her groups: got %q, -want, +got:\n%s", user.Username, diff)
	}
}
