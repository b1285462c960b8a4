package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		want   string
	}{
		"Help":        {"Help is not an error.", []string{"--help"}, 0, "--tls-private-key-file file"},
		"Unknown":     {"An unknown flag is an error.", []string{"--secure-prot=1"}, 2, "unknown flag: --secure-prot"},
		"Argument":    {"Arguments are errors.", []string{"serve"}, 2, `unexpected argument "serve"`},
		"NoNumber":    {"The port must be a number.", []string{"--secure-port=https"}, 2, "--secure-port"},
		"TooLarge":    {"A port has 16 bits.", []string{"--secure-port=65536"}, 2, "--secure-port: want 0 to 65535, got 65536"},
		"NoAddress":   {"The address must be an IP address.", []string{"--bind-address=here"}, 2, `--bind-address: want an IP address, got "here"`},
		"NoKey":       {"A certificate needs its key.", []string{"--tls-cert-file=c"}, 2, "want both or none"},
		"Both":        {"Only one certificate can be given.", []string{"--cert-dir=d", "--tls-cert-file=c", "--tls-private-key-file=k"}, 2, "want one of them"},
		"NoConfig":    {"An API server is required.", []string{"--kubeconfig=" + nowhere}, 1, "finding the API server (see --kubeconfig)"},
		"NoCertFiles": {"The certificate files must exist.", []string{"--kubeconfig=" + kubeconfig(t), "--cert-dir=" + nowhere}, 1, "reading the webhook's certificate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if code := run(t.Context(), append([]string{"pizza-crd-webhook"}, tc.args...), &out); code != tc.code {
				t.Errorf("%s\nthe code is %d, want %d", tc.reason, code, tc.code)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("%s\n%q is not in\n%s", tc.reason, tc.want, &out)
			}
		})
	}
}

// kubeconfig returns the path of a kubeconfig for an API server that does not exist.
func kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: c, user: {}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNames verifies the names in the certificate. An API server verifies one of them, and Go accepts no common name
// since 1.15.
func TestNames(t *testing.T) {
	cases := map[string]struct {
		args []string
		want []string
	}{
		"Cluster": {nil, []string{"webhook.pizza-crd.svc", "webhook.pizza-crd.svc.cluster.local"}},
		"Machine": {[]string{"--bind-address=127.0.0.1", "--service=w", "--namespace=n"}, []string{"w.n.svc", "w.n.svc.cluster.local", "127.0.0.1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := parse(append([]string{"pizza-crd-webhook"}, tc.args...), os.Stderr)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, o.names()); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}
