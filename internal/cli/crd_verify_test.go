package cli

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/kit/webhook/conversion"
)

// definitionOfJars has two versions with different names for a size.
const definitionOfJars = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: jars.example.com}
spec:
  group: example.com
  names: {kind: Jar, listKind: JarList, plural: jars, singular: jar}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: string}, lid: {type: string}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {volume: {type: string}, lid: {type: string}}}}}}
`

// policyOfJars renames the size.
const policyOfJars = `
apiVersion: refract.dev/v1alpha1
kind: ConversionPolicy
metadata: {name: jars}
spec: {crd: jars.example.com, hub: v2, spokes: [{version: v1, fields: [{hub: spec.volume, spoke: spec.size}]}]}
`

// webhookOfJars starts a webhook that converts jars as a policy defines. It returns the URL, a file with the
// certificate, and the number of reviews that it has answered.
func webhookOfJars(t *testing.T, text string) (url, authority string, reviews *atomic.Int64) {
	t.Helper()
	var crd map[string]any
	if err := yaml.Unmarshal([]byte(definitionOfJars), &crd); err != nil {
		t.Fatal(err)
	}
	definition, err := structural.New(crd)
	if err != nil {
		t.Fatal(err)
	}
	var spec refractv1alpha1.ConversionPolicy
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	compiled, findings := policy.Compile(&spec.Spec, definition)
	if compiled == nil {
		t.Fatalf("the policy does not compile: %v", findings)
	}
	engine, err := convert.New(compiled.Resource())
	if err != nil {
		t.Fatal(err)
	}
	handler := conversion.Handler(engine, conversion.Options{})
	reviews = &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reviews.Add(1)
		if r.URL.Path != "/convert" {
			http.Error(w, "nothing is here", http.StatusNotFound)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	authority = filepath.Join(t.TempDir(), "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, authority, reviews
}

// TestVerifyAgainst compares a policy with an equivalent webhook and with a different one.
func TestVerifyAgainst(t *testing.T) {
	other := strings.Replace(policyOfJars, "{hub: spec.volume, spoke: spec.size}",
		`{hub: spec.volume, spoke: spec.size, toHub: 'value + "l"', toSpoke: 'value.replace("l", "")', lossy: true}`, 1)
	alike, alikeAuthority, reviews := webhookOfJars(t, policyOfJars)
	otherwise, otherAuthority, _ := webhookOfJars(t, other)
	dir := t.TempDir()
	files := map[string]string{
		"crd.yaml": definitionOfJars, "policy.yaml": policyOfJars,
		"objects.yaml": "{apiVersion: example.com/v1, kind: Jar, metadata: {name: jam, namespace: default}, spec: {size: large}}\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		stdout []string
		stderr string
	}{
		"Alike": {
			reason: "A webhook that converts in the same way agrees.", args: []string{"--against", alike + "/convert", "--ca", alikeAuthority},
			stdout: []string{"and " + alike + "/convert: seed 1\n", "✔ Agreement", ": 0 violations\n"},
		},
		"Insecure": {
			reason: "With --insecure, any certificate is accepted.", args: []string{"--against", alike + "/convert", "--insecure"},
			stdout: []string{"✔ Agreement"},
		},
		"Named": {
			reason: "Through a tunnel, the certificate is checked for the name of the Service.",
			args:   []string{"--against", alike + "/convert", "--ca", alikeAuthority, "--tls-server-name", "example.com"},
			stdout: []string{"✔ Agreement"},
		},
		"Otherwise": {
			reason: "A different result is a violation, at the entry of the policy.", code: exitFound,
			args:   []string{"--against", otherwise + "/convert", "--ca", otherAuthority, "--objects", "objects.yaml"},
			stdout: []string{"✗ Agreement", "policy.yaml:5: Agreement: spec.spokes[0].fields[0]: spec.volume", "  object:\n    apiVersion: example.com/v1\n"},
		},
		"Untrusted": {
			reason: "A webhook with an untrusted certificate is an error.", code: exitError, args: []string{"--against", alike + "/convert"},
			stderr: "hint: --ca names a file with the CA certificate of the webhook\n",
		},
		"OtherName": {
			reason: "A webhook with a certificate for another name is an error.", code: exitError,
			args:   []string{"--against", alike + "/convert", "--ca", alikeAuthority, "--tls-server-name", "webhook.jars.svc"},
			stderr: "hint: --tls-server-name sets the name: the certificate is for example.com, *.example.com\n",
		},
		"NotFound": {
			reason: "An answer from a wrong path is an error that shows the answer.", code: exitError,
			args:   []string{"--against", alike + "/elsewhere", "--ca", alikeAuthority},
			stderr: "error: asking " + alike + "/elsewhere: the HTTP status is 404 Not Found: nothing is here\n",
		},
	}
	t.Chdir(dir)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"refract", "crd", "verify", "--crd", "crd.yaml", "--policy", "policy.yaml", "--count", "200"}, tc.args...)
			var stdout, stderr bytes.Buffer
			if code := Main(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != tc.code {
				t.Errorf("%s\nexit code %d, want %d\n%s%s", tc.reason, code, tc.code, &stdout, &stderr)
			}
			for _, want := range tc.stdout {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("%s\nstdout: %s\nwant: %s", tc.reason, &stdout, want)
				}
			}
			if !strings.HasSuffix(stderr.String(), tc.stderr) {
				t.Errorf("%s\nstderr: %s\nwant: %s", tc.reason, &stderr, tc.stderr)
			}
		})
	}
	if n := reviews.Load(); n == 0 || n > 300 {
		t.Errorf("%d reviews for 3 times 400 objects and some mistakes: want them in batches", n)
	}
}

// TestVerifyAgainstSilence: a webhook that never responds is not reported as equivalent.
func TestVerifyAgainstSilence(t *testing.T) {
	done := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(done) })
	dir := t.TempDir()
	for name, text := range map[string]string{"crd.yaml": definitionOfJars, "policy.yaml": policyOfJars} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	args := []string{"refract", "crd", "verify", "--crd", "crd.yaml", "--policy", "policy.yaml", "--against", server.URL, "--insecure", "--timeout", "1s"}
	var stdout, stderr bytes.Buffer
	code := Main(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	want := "error: " + server.URL + " did not answer within 1s\nhint: --timeout sets another limit\n"
	if code != exitError || stdout.Len() > 0 || stderr.String() != want {
		t.Errorf("exit code %d, want %d\n%s%s\nwant: %s", code, exitError, &stdout, &stderr, want)
	}
}
