//go:build unix

package inventory

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

func TestReadProviders(t *testing.T) {
	cases := map[string]struct {
		reason string
		file   string
		want   string // Part of the error.
	}{
		"Usual":     {"A program with all settings is accepted.", `{"providers":[{"name":"a","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh","args":["-c"],"env":[{"name":"A","value":"b"}],"provideClusterInfo":true,"installHint":"h","interactiveMode":"Never"}}]}`, ""},
		"None":      {"The list may be empty.", `{}`, ""},
		"Misspelt":  {"Misspelt fields are rejected.", `{"providers":[{"name":"a","exec":{}}]}`, `unknown field "exec"`},
		"NoName":    {"A provider without a name could not be requested.", `{"providers":[{"execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh"}}]}`, "providers[0].name: is empty"},
		"Twice":     {"Names are unique.", `{"providers":[{"name":"a","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh"}},{"name":"a","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh"}}]}`, `providers[1].name: duplicate value "a"`},
		"NoCommand": {"A command is required.", `{"providers":[{"name":"a","execConfig":{"apiVersion":"client.authentication.k8s.io/v1"}}]}`, "providers[0].execConfig.command: is empty"},
		"Version":   {"Only supported versions are accepted.", `{"providers":[{"name":"a","execConfig":{"apiVersion":"v2","command":"sh"}}]}`, "providers[0].execConfig.apiVersion: want client.authentication.k8s.io/v1 or"},
		"Terminal":  {"A program cannot ask a user.", `{"providers":[{"name":"a","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh","interactiveMode":"Always"}}]}`, "there is no terminal"},
		"NotThere":  {"A missing program is reported when the file is read.", `{"providers":[{"name":"a","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"no-such-program","installHint":"install it"}}]}`, "executable file not found in $PATH: install it"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ReadProviders([]byte(tc.file))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nReadProviders(...): want %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

// TestAsk checks the credentials or the error of a program. The errors must not contain any output, because other users
// read them.
func TestAsk(t *testing.T) {
	const secret = "hush"
	answer := func(status string) string {
		return `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":` + status + `}'`
	}
	cases := map[string]struct {
		reason string
		script string
		want   credential
		err    string
		said   string
	}{
		"Token": {
			reason: "A program may return a token with its expiration time.", script: answer(`{"token":"hush","expirationTimestamp":"2026-01-01T00:00:00Z"}`),
			want: credential{token: secret, until: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		},
		"Certificate": {reason: "A program may return a certificate.", script: answer(`{"clientCertificateData":"c","clientKeyData":"k"}`), want: credential{cert: []byte("c"), key: []byte("k")}},
		"Told": {
			reason: "The program gets the cluster, and the environment that the operator has set.",
			script: `case "$KUBERNETES_EXEC_INFO" in *'"server":"https://a:1"'*) ;; *) exit 3;; esac; ` + answer(`{"token":"'$A'"}`), want: credential{token: "b"},
		},
		"Fails":   {reason: "The error output of the program goes to the log.", script: "echo hush >&2; exit 7", err: "exit status 7", said: secret},
		"Nothing": {reason: "Empty output is an error.", script: "true", err: "prints no ExecCredential"},
		"Rubbish": {reason: "Invalid output is not quoted.", script: "echo hush", err: "prints no ExecCredential"},
		"NoStatus": {
			reason: "Incomplete output is not quoted.",
			script: `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}'`, err: "with a status",
		},
		"OtherKind": {reason: "Output of another version is not quoted.", script: `echo '{"apiVersion":"v7","kind":"ExecCredential","status":{"token":"hush"}}'`, err: "prints no ExecCredential of client.authentication.k8s.io/v1"},
		"NoToken":   {reason: "Output without tokens is not quoted.", script: answer(`{"clientCertificateData":"hush"}`), err: "neither a token nor a certificate"},
		"Endless":   {reason: "The size of the output is bounded.", script: "yes hush | head -c 3000000", err: "prints more than 1048576 bytes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			p := &Program{APIVersion: versions[0], Command: path, Env: []clientcmdv1.ExecEnvVar{{Name: "A", Value: "b"}}, ProvideClusterInfo: true}
			got, err := p.ask(t.Context(), &clientcmdv1.Cluster{Server: "https://a:1"})
			if (err == nil) != (tc.err == "") || err != nil && (!strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), secret)) {
				t.Fatalf("%s\nask(...): want %q, got %v", tc.reason, tc.err, err)
			}
			var why *complaint
			if errors.As(err, &why) && strings.TrimSpace(why.said) != tc.said {
				t.Errorf("%s\nask(...): want %q for the log, got %q", tc.reason, tc.said, why.said)
			}
			if err == nil && (got.token != tc.want.token || string(got.cert) != string(tc.want.cert) || string(got.key) != string(tc.want.key) || !got.until.Equal(tc.want.until)) {
				t.Errorf("%s\nask(...): want %+v, got %+v", tc.reason, tc.want, *got)
			}
		})
	}
}

func TestNextAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		cred   *credential
		want   time.Duration
	}{
		"None":  {"Without credentials, the program runs again soon.", nil, soonest},
		"NoEnd": {"Credentials without an expiration time are read again periodically.", &credential{}, latest},
		"Hour":  {"Credentials are read again after two thirds of their lifetime.", &credential{until: now.Add(time.Hour)}, 40 * time.Minute},
		"Short": {"The delay has a minimum.", &credential{until: now.Add(time.Second)}, soonest},
		"Past":  {"The minimum applies to expired credentials, too.", &credential{until: now.Add(-time.Hour)}, soonest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := nextAfter(now, tc.cred).Sub(now); got != tc.want {
				t.Errorf("%s\nnextAfter(...): want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}
