package playground

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestStored reads the content of a real etcd.
func TestStored(t *testing.T) {
	t.Parallel()
	bin, err := Assets("../../bin/refract")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "hub")
	p, err := Start(t.Context(), Options{Dir: dir, Assets: bin, Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })

	c := client(t, p.Hub())
	want := sets.New[string]()
	for i := range storedPage + 5 {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)},
			Data:       map[string]string{"text": fmt.Sprintf("this is %d %s", i, strings.Repeat("x", 4<<10))},
		}
		if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		want.Insert("/registry/configmaps/default/" + cm.Name)
	}

	t.Run("MoreThanAPage", func(t *testing.T) {
		stored, err := p.Stored(t.Context(), "hub", "/registry/configmaps/default/many-")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sets.List(want), sets.List(sets.KeySet(stored))); diff != "" {
			t.Errorf("Stored(...): each key once: -want, +got:\n%s", diff)
		}
		if got := string(stored["/registry/configmaps/default/many-204"]); !strings.Contains(got, "this is 204 xxx") {
			t.Errorf("Stored(...): want the bytes of the object, got %q", got)
		}
	})
	t.Run("Nothing", func(t *testing.T) {
		stored, err := p.Stored(t.Context(), "hub", "/registry/there-is-no-such-thing/")
		if err != nil || stored == nil || len(stored) > 0 {
			t.Errorf("Stored(...): want an empty map and no error, got %v, %v", stored, err)
		}
	})
	t.Run("UnknownCluster", func(t *testing.T) {
		if _, err := p.Stored(t.Context(), "member-1", "/registry/"); err == nil {
			t.Error("Stored(...): want an error for a cluster that is not there")
		}
	})
	t.Run("NoPrefix", func(t *testing.T) {
		if _, err := p.Stored(t.Context(), "hub", ""); err == nil {
			t.Error("Stored(...): want an error rather than everything")
		}
	})
	t.Run("Canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Stored(ctx, "hub", "/registry/"); !errors.Is(err, context.Canceled) {
			t.Errorf("Stored(...): want %v, got %v", context.Canceled, err)
		}
	})
	t.Run("Attached", func(t *testing.T) {
		v := wantSameView(t, p, dir)
		for _, prefix := range []string{"/registry/configmaps/default/many-", "/registry/there-is-no-such-thing/"} {
			want, err := p.Stored(t.Context(), "hub", prefix)
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.Stored(t.Context(), "hub", prefix)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Stored(%q): -the playground, +another process:\n%s", prefix, diff)
			}
		}
		path, err := v.AuditLog("hub")
		if err != nil {
			t.Fatal(err)
		}
		if log, err := os.ReadFile(path); err != nil || !strings.Contains(string(log), `"name":"many-204"`) {
			t.Errorf("AuditLog(...): want who has created what, got %d bytes, %v", len(log), err)
		}
		wantKnown(t, v, p.Hub())
	})
	t.Run("EtcdHalted", func(t *testing.T) {
		if err := p.Kill("hub", Etcd); err != nil {
			t.Fatal(err)
		}
		var refused *net.OpError
		if _, err := p.Stored(t.Context(), "hub", "/registry/"); !errors.As(err, &refused) {
			t.Errorf("Stored(...): want a refused connection, got %v", err)
		}
	})
	t.Run("AttachedTooLate", func(t *testing.T) {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := Attach(t.Context(), dir); !errors.Is(err, ErrNotRunning) {
			t.Errorf("Attach(...): want %v, got %v", ErrNotRunning, err)
		}
	})
}

func TestStoredRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		status int
		body   string
		want   string
	}{
		"Compacted": {
			reason: "An error message of etcd is passed on.",
			status: http.StatusBadRequest,
			body:   `{"message":"required revision has been compacted"}` + "\n",
			want:   `etcd answers 400 Bad Request: {"message":"required revision has been compacted"}`,
		},
		"NotEtcd": {
			reason: "The server at the address may not be etcd.",
			status: http.StatusOK,
			body:   "hello",
			want:   "reading the answer of etcd: ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			_, err := storedRange{}.read(t.Context(), server.Client(), server.URL)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("\n%s\nread(...): want an error that begins with %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

func TestAfter(t *testing.T) {
	cases := map[string]struct {
		reason string
		prefix string
		want   string
	}{
		"Usual":      {reason: "The last byte is incremented.", prefix: "/a/", want: "/a0"},
		"Full":       {reason: "A last byte that cannot be incremented is dropped.", prefix: "a\xff", want: "b"},
		"NothingEnd": {reason: "No key follows the prefix, so the end is open: a zero byte.", prefix: "\xff\xff", want: "\x00"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, string(after(tc.prefix))); diff != "" {
				t.Errorf("\n%s\nafter(%q): -want, +got:\n%s", tc.reason, tc.prefix, diff)
			}
		})
	}
}
