package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"refract.dev/internal/checkup"
	"refract.dev/internal/installation"
	"refract.dev/kit/webhook/pki"
	"refract.dev/test/harness"
)

// fault is a fault of an installation, with the result that refract check must report.
type fault struct {
	name   string
	reason string
	do     func(w *world) (undo func()) // Nil: the arguments alone cause the result.
	again  func(w *world)               // Called before each check if a replica repairs the fault; may be nil.
	args   []string                     // Of refract check.
	check  string                       // Name of the check that finds the fault.
	want   string                       // Part of its result.
	advice string                       // Part of its advice.
}

// TestCheck injects one fault after the other into a working installation.
func TestCheck(t *testing.T) {
	t.Parallel()
	w := begin(t, 1)
	w.kubectl(w.must("install", "--export", "--image", image), "apply", "-f", "-")
	replica := w.start("refract")
	w.settled("the installation works", nil)

	for _, f := range slowToHeal() {
		w.find(t, &f)
	}
	// From here on no replica runs, because a replica would repair the following faults.
	w.kill(replica)
	for _, f := range unattended() {
		w.find(t, &f)
	}
}

// find injects a fault, and waits until refract check reports this fault and no other.
func (w *world) find(t *testing.T, f *fault) {
	t.Helper()
	t.Run(f.name, func(t *testing.T) {
		w := &world{w.Env, t, w.client}
		if f.do != nil {
			if undo := f.do(w); undo != nil {
				defer undo()
			}
		}
		harness.Eventually(t, f.reason, func(context.Context) error {
			if f.again != nil {
				f.again(w)
			}
			report := w.check(f.args...)
			for _, r := range report.Results {
				if !r.OK && r.Check == f.check && strings.Contains(r.Message, f.want) && strings.Contains(r.Do, f.advice) {
					return nil
				}
			}
			return fmt.Errorf("want %s: %s → %s, got\n%s", f.check, f.want, f.advice, wrong(report))
		})
	})
}

// settled waits until refract check reports no fault except by the named checks.
func (w *world) settled(what string, but []string, args ...string) {
	w.t.Helper()
	harness.Eventually(w.t, what, func(context.Context) error {
		report := w.check(args...)
		for _, r := range report.Results {
			known := false
			for _, name := range but {
				known = known || r.Check == name
			}
			if !r.OK && !known {
				return errors.New(wrong(report))
			}
		}
		return nil
	})
}

// slowToHeal returns faults that a replica does not repair, or only after some time.
func slowToHeal() []fault {
	return []fault{
		{
			name: "RightMissing", reason: "A role lacks a rule.",
			do: func(w *world) func() {
				w.kubectl("", "patch", "clusterrole", "refract-hub", "--type=json", `-p=[{"op":"remove","path":"/rules/4"}]`)
				return func() { w.kubectl(w.must("install", "--export", "--image", image), "apply", "-f", "-") }
			},
			check: "rights", want: "system:serviceaccount:kube-admiral-system:refract may not get customresourcedefinitions", advice: "refract install",
		},
		{
			name: "NotReady", reason: "No node fits the pods.",
			do: func(w *world) func() {
				patch := func(selector string) {
					w.kubectl("", "patch", "deployment", "refract", "-n", system, "--type=merge",
						`-p={"spec":{"strategy":{"type":"Recreate","rollingUpdate":null},"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
				}
				patch(`{"no":"such-node"}`)
				return func() { patch(`{"no":null}`) }
			},
			check: "deployment", want: "0 of 2 replicas are ready: pod refract-", advice: "kubectl describe",
		},
		{
			name: "TwoInstallations", reason: "The cluster has two installations.",
			do: func(w *world) func() {
				other := w.must("install", "--export", "--system-namespace", "other", "--image", image)
				w.kubectl(other, "apply", "-f", "-")
				return func() {
					w.kubectl("", "delete", "namespace", "other", "--wait=false")
					w.kubectl(w.must("install", "--export", "--image", image), "apply", "-f", "-")
				}
			},
			check: "others", want: "deployment other/refract", advice: "uninstall",
		},
		{
			name: "KubeAdmiral", reason: "KubeAdmiral, which has the same types, is installed.",
			do: func(w *world) func() {
				w.kubectl(kubeAdmiral, "apply", "-f", "-")
				return func() { w.kubectl(kubeAdmiral, "delete", "-f", "-") }
			},
			check: "kubeadmiral", want: "federatedtypeconfigs.core.kubeadmiral.io", advice: "run only one of them",
		},
		{
			name: "TypeOfAnotherVersion", reason: "A definition is from another version.",
			do: func(w *world) func() {
				const crd = "overridepolicies.core.kubeadmiral.io"
				describe := func(as string) {
					w.kubectl("", "patch", "crd", crd, "--type=json",
						fmt.Sprintf(`-p=[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":%q}]`, as))
				}
				is := w.kubectl("", "get", "crd", crd, "-o", "jsonpath={.spec.versions[0].schema.openAPIV3Schema.description}")
				describe("as it was")
				return func() { describe(is) }
			},
			check: "types", want: "overridepolicies.core.kubeadmiral.io is from another version", advice: "refract install",
		},
		{
			name: "PolicyMissing", reason: "The admission policy for objects that travel with others is not bound.",
			again: func(w *world) {
				w.kubectl("", "delete", "validatingadmissionpolicybinding", "refract-followers", "--ignore-not-found")
			},
			check: "policies", want: `"refract-followers" not found`, advice: "log",
		},
		{
			name: "MemberNotReady", reason: "A member has no Secret.",
			do: func(w *world) func() {
				w.kubectl(lost, "apply", "-f", "-")
				return func() { w.must("unjoin", "lost", "--force") }
			},
			check: "member", want: "lost: SecretNotFound", advice: "refract get cluster/lost",
		},
		{
			name: "WiredToNobody", reason: "A definition names the conversion webhook of a missing part.",
			do: func(w *world) func() {
				w.kubectl(wired, "apply", "-f", "-")
				return func() { w.kubectl(wired, "delete", "-f", "-") }
			},
			check: "conversion", want: "widgets.example.com (service kube-admiral-system/refract-conversion)", advice: "--unwire",
		},
		{
			name: "PartMissing", reason: "A required part is not installed.",
			args:  []string{"--injection"},
			check: "installed", want: "no injection", advice: "refract install --injection",
		},
		{
			name: "NoRights", reason: "The user has no right to install.",
			args:  []string{"--pre", "--as", "nobody", "--as-group", "system:masters-not"},
			check: "rights", want: "cannot be written", advice: "as a user who may",
		},
		{
			name: "NamespaceEnds", reason: "The namespace is being deleted.",
			do: func(w *world) func() {
				w.kubectl(ending, "apply", "-f", "-")
				w.kubectl("", "delete", "namespace", "ending", "--wait=false")
				return func() {
					w.kubectl("", "patch", "configmap", "keep", "-n", "ending", "--type=merge", `-p={"metadata":{"finalizers":null}}`)
				}
			},
			args:  []string{"--pre", "--system-namespace", "ending"},
			check: "namespace", want: "namespace ending is being deleted", advice: "wait until it is gone",
		},
	}
}

// unattended returns faults that a running replica would repair.
func unattended() []fault {
	return []fault{
		{
			name: "Unreachable", reason: "The webhook does not answer.",
			check: "answer", want: "failed calling webhook", advice: "check the Service",
		},
		{
			name: "NobodyLeads", reason: "A Lease is not renewed.",
			do: func(w *world) func() {
				w.kubectl("", "patch", "lease", "refract-leader", "-n", system, "--type=merge",
					`-p={"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`)
				return nil
			},
			check: "lease", want: "no replica leads", advice: "log",
		},
		{
			name: "ClockOfANode", reason: "A replica's clock is ahead.",
			do: func(w *world) func() {
				at := time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z")
				w.kubectl("", "patch", "lease", "refract-leader", "-n", system, "--type=merge", `-p={"spec":{"renewTime":"`+at+`"}}`)
				return nil
			},
			check: "lease", want: "ahead of the API server's", advice: "NTP",
		},
		{
			name: "CertificateExpired", reason: "The certificate was not renewed.",
			do: func(w *world) func() {
				w.issue(time.Now().Add(-pki.ServingLife - time.Hour))
				return nil
			},
			check: "certificate", want: "expired at", advice: "delete the secret",
		},
		{
			name: "CertificateMissing", reason: "The Secret with the certificate is missing.",
			do: func(w *world) func() {
				w.kubectl("", "delete", "secret", "refract-webhook", "-n", system)
				return nil
			},
			check: "certificate", want: "not found", advice: "refract run issues another",
		},
		{
			name: "AnotherIsAsked", reason: "The webhook configuration names the Service of another installation.",
			do: func(w *world) func() {
				w.kubectl(`{"webhooks": [{"name": "policies.refract.dev", "clientConfig": {"url": null, "service": {"namespace": "other", "name": "refract", "path": "/validate/policies"}}}]}`,
					"patch", "validatingwebhookconfiguration", "refract-policies", "--patch-file=/dev/stdin")
				return nil
			},
			check: "webhook", want: "calls service other/refract", advice: "log",
		},
		{
			name: "NotAsked", reason: "The webhook configuration is missing.",
			do: func(w *world) func() {
				w.kubectl("", "delete", "validatingwebhookconfiguration", "refract-policies")
				return nil
			},
			check: "answer", want: "an invalid OverridePolicy was not rejected", advice: "refract-policies",
		},
		{
			name: "LeftOver", reason: "The manifests are deleted, but objects that the replicas created remain.",
			do: func(w *world) func() {
				w.kubectl("", "delete", "deployment", "refract", "-n", system)
				w.kubectl("", "delete", "lease", "refract-leader", "-n", system)
				return nil
			},
			check: "left", want: "MutatingWebhookConfiguration refract-injection-policies", advice: "refract uninstall",
		},
	}
}

// issue writes a certificate that was issued at this time.
func (w *world) issue(at time.Time) {
	w.t.Helper()
	issuer := pki.Issuer{CommonName: "refract-webhook", Names: []string{"127.0.0.1"}, Now: func() time.Time { return at }}
	bundle, _, err := issuer.Renew(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := bundle.Data()
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		w.t.Fatal(err)
	}
	w.kubectl(string(text), "patch", "secret", "refract-webhook", "-n", system, "--type=merge", "--patch-file=/dev/stdin")
}

// TestCheckCluster checks a cluster before the installation.
func TestCheckCluster(t *testing.T) {
	t.Parallel()
	w := begin(t, 1)
	cfg, err := w.Config(site)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason      string
		change      func(path string, body []byte) []byte
		ahead       time.Duration
		bare        bool
		check, want string
	}{
		"Old": {
			reason: "Kubernetes is too old.",
			change: func(path string, body []byte) []byte {
				if path != "/version" {
					return body
				}
				return []byte(`{"major": "1", "minor": "34", "gitVersion": "v1.34.2"}`)
			},
			check: "version", want: "Kubernetes v1.34.2",
		},
		"NoAdmissionPolicies": {
			reason: "The API server does not serve admission policies.",
			change: func(path string, body []byte) []byte {
				if path != "/apis/admissionregistration.k8s.io/v1" {
					return body
				}
				return []byte(strings.ReplaceAll(string(body), `"validatingadmissionpolicies`, `"others`))
			},
			check: "admission", want: "without validatingadmissionpolicies",
		},
		"Clock": {reason: "The clock is ahead by a minute.", ahead: time.Minute, check: "clock", want: "differ by 1m0s"},
		"Nodes": {reason: "The cluster has no node for pods.", bare: true, check: "nodes", want: "none of 0 nodes is ready"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			to := rest.CopyConfig(cfg)
			if tc.bare {
				if to, err = w.Config("hub"); err != nil {
					t.Fatal(err)
				}
			}
			if tc.change != nil {
				to = behind(t, cfg, tc.change)
			}
			report, err := checkup.Run(t.Context(), &checkup.Options{
				Config: to, Before: true, Parts: installation.Parts(), Now: func() time.Time { return time.Now().Add(tc.ahead) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := wrong(report); !strings.HasPrefix(got, tc.check+": ") || !strings.Contains(got, tc.want) || strings.Contains(got, "\n") {
				t.Errorf("%s\nwant %s: %s, and nothing else, got\n%s", tc.reason, tc.check, tc.want, got)
			}
		})
	}
}

// behind returns a client configuration for an API server through a proxy that changes the responses.
func behind(t *testing.T, cfg *rest.Config, change func(path string, body []byte) []byte) *rest.Config {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding")
			if strings.HasPrefix(r.In.URL.Path, "/apis/admissionregistration") || r.In.URL.Path == "/version" {
				r.Out.Header.Set("Accept", "application/json")
			}
		},
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = change(r.Request.URL.Path, body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			r.ContentLength = int64(len(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

const kubeAdmiral = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: federatedtypeconfigs.core.kubeadmiral.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: core.kubeadmiral.io
  scope: Cluster
  names: {plural: federatedtypeconfigs, kind: FederatedTypeConfig}
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

const lost = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: lost}
spec: {apiEndpoint: "https://127.0.0.1:1", secretRef: {name: lost}}
`

const wired = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: kube-admiral-system, name: refract-conversion, path: /convert/widgets.example.com}}}
`

const ending = `
apiVersion: v1
kind: Namespace
metadata: {name: ending}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: keep, namespace: ending, finalizers: [example.com/keep]}
`
