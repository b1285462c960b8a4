package cli

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// memberToken is a token of Refract's account on a member.
const memberToken = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6a3ViZS1hZG1pcmFsLXN5c3RlbTpyZWZyYWN0LW1lbWJlciIsImlhdCI6MSwiZXhwIjoyfQ.c2ln"

// clusterTypes are the API types of a cluster on which Refract is installed or has an account.
var clusterTypes = slices.Concat(fakeTypes, []fakeType{
	{schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}},
	{schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "services", Kind: "Service", Namespaced: true}},
	{schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "nodes", Kind: "Node"}},
	{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, metav1.APIResource{Name: "roles", Kind: "Role", Namespaced: true}},
	{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, metav1.APIResource{Name: "rolebindings", Kind: "RoleBinding", Namespaced: true}},
	{schema.GroupVersion{Group: "policy", Version: "v1"}, metav1.APIResource{Name: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Namespaced: true}},
	{schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, metav1.APIResource{Name: "networkpolicies", Kind: "NetworkPolicy", Namespaced: true}},
	{schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, metav1.APIResource{Name: "leases", Kind: "Lease", Namespaced: true}},
	{schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, metav1.APIResource{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"}},
	{admissionTypes, metav1.APIResource{Name: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"}},
	{admissionTypes, metav1.APIResource{Name: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"}},
	{admissionTypes, metav1.APIResource{Name: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy"}},
	{admissionTypes, metav1.APIResource{Name: "validatingadmissionpolicybindings", Kind: "ValidatingAdmissionPolicyBinding"}},
})

var admissionTypes = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}

// silence makes the clusters not respond to a request. If alone is false, they do not respond to later requests either.
type silence struct {
	at    int64 // The number of the request; 0 for none.
	alone bool

	asked atomic.Int64
	begun chan struct{}
	once  sync.Once
	over  chan struct{}
}

func (s *silence) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.asked.Add(1)
		if s.at == 0 || n < s.at || n > s.at && s.alone {
			h.ServeHTTP(w, r)
			return
		}
		s.once.Do(func() { close(s.begun) })
		select {
		case <-r.Context().Done():
		case <-s.over:
		}
	})
}

// hangs has commands, each with the objects on its hub. MEMBER stands for the address of the member.
var hangs = map[string]struct {
	args string
	hub  string
	// left is a pattern for errors that are allowed in addition to the error about the timeout.
	left string
}{
	"install":   {args: "install --image registry.example.com/refract", left: `is not ready: `},
	"uninstall": {args: "uninstall --purge --yes", hub: hubWithMember},
	"join":      {args: "join eu-2 --member-kubeconfig MEMBER", left: `is not ready after 100ms: |may remain|has joined: `},
	"joinAs":    {args: "join eu-2 --member-kubeconfig MEMBER --existing-credentials", left: `is not ready after 100ms: |has joined: `},
	"replaces":  {args: "join eu-2 --replaces eu-1", hub: hubWithMember, left: `is not ready after 100ms: `},
	"renewAll":  {args: "join --renew-all --member-kubeconfig MEMBER", hub: hubWithMember, left: `: not renewed: |is not ready after `},
	"unjoin":    {args: "unjoin eu-1 --yes", hub: hubWithMember, left: `has not left after 100ms: |stays|may remain`},
	"force":     {args: "unjoin eu-1 --force", hub: hubWithMember, left: `may remain`},
	"wait":      {args: "wait deployment/web -n shop", hub: hubWithMember, left: `is not propagated after 100ms: `},
	"rollout":   {args: "rollout status deployment/web -n shop --wait", hub: hubWithMember, left: `not complete after 100ms`},
}

const hubWithMember = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: eu-1, uid: of-eu-1}
spec: {apiEndpoint: "MEMBER", insecure: true, useServiceAccountToken: true, secretRef: {name: eu-1}}
status: {clusterUID: uid-namespaces-/kube-system}
---
apiVersion: v1
kind: Secret
metadata:
  name: eu-1
  namespace: kube-admiral-system
  labels: {refract.dev/joined: "true"}
  annotations: {refract.dev/endpoint: "MEMBER", refract.dev/insecure: "true", refract.dev/joined-as: of-eu-1}
data: {service-account-token-data: TOKEN}
---
apiVersion: refract.dev/v1alpha1
kind: Propagation
metadata: {name: web.deployments.apps, namespace: shop}
spec: {source: {apiVersion: apps/v1, kind: Deployment, resource: deployments, name: web}}
status:
  clusters: [{name: eu-1, state: Pending}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
`

// TestEveryCommandEndsWhereverItWaits: a command ends soon after its --timeout or an interrupt, whichever request a
// cluster does not answer. The error describes the progress and the next step. If the cluster has not joined, the error
// names every object that remains on it.
func TestEveryCommandEndsWhereverItWaits(t *testing.T) {
	for name, tc := range hangs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := hung{t: t, args: tc.args, hub: tc.hub, left: tc.left}
			n := all.run(&silence{}, false)
			var wg sync.WaitGroup
			slots := make(chan struct{}, 16)
			for at := int64(0); at < n; at += 1 + n/25 {
				for _, how := range []struct{ alone, interrupt bool }{{false, false}, {true, false}, {true, true}} {
					slots <- struct{}{}
					wg.Go(func() {
						defer func() { <-slots }()
						all.run(&silence{at: at + 1, alone: how.alone}, how.interrupt)
					})
				}
			}
			wg.Wait()
		})
	}
}

type hung struct {
	t               *testing.T
	args, hub, left string
}

// run runs the command, and returns the number of its requests.
func (h *hung) run(s *silence, interrupt bool) int64 {
	h.t.Helper()
	s.begun, s.over = make(chan struct{}), make(chan struct{})
	defer func() { s.once.Do(func() { close(s.begun) }) }()
	member := startFakeHub(nil, clusterTypes, s.before)
	hub := startFakeHub(h.objects(strings.NewReplacer("MEMBER", member.URL, "TOKEN", base64.StdEncoding.EncodeToString([]byte(memberToken))).Replace(h.hub)), clusterTypes, s.before)
	defer member.Close()
	defer hub.Close()
	defer close(s.over)
	dir := h.t.TempDir()
	files := map[string]*fakeHub{"hub": hub, "member": member}
	for name, cluster := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(cluster.kubeconfig()), 0o600); err != nil {
			h.t.Error(err)
		}
	}
	args := strings.Fields(strings.ReplaceAll(h.args, "MEMBER", filepath.Join(dir, "member")))
	args = append(args, "--kubeconfig", filepath.Join(dir, "hub"), "--timeout")
	timeout := 100 * time.Millisecond
	if interrupt {
		timeout = time.Hour
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	run := start(ctx, "refract", append(args, timeout.String()), strings.NewReader(""))
	if interrupt {
		go func() {
			<-s.begun
			cancel()
		}()
	}
	select {
	case code := <-run.code:
		h.check(s, interrupt, code, run.said.String(), hub, member)
	case <-time.After(min(timeout, time.Minute) + soon):
		h.t.Errorf("refract %s: silence at request %d of %d (alone %t): it goes on; it said:\n%s", h.args, s.at, s.asked.Load(), s.alone, &run.said)
	}
	return s.asked.Load()
}

// check fails the test unless the output describes the progress and the next step.
func (h *hung) check(s *silence, interrupt bool, code int, text string, hub, member *fakeHub) {
	h.t.Helper()
	fail := func(why string) {
		h.t.Helper()
		h.t.Errorf("refract %s: silence at request %d (alone %t, interrupt %t): %s; exit code %d, and it said:\n%s", h.args, s.at, s.alone, interrupt, why, code, text)
	}
	want := `(?m)^error: the --timeout of 100ms expired, and .*\n(.*\n)?hint: .`
	if interrupt {
		want = `(?m)^error: interrupted, and .*\nhint: .`
	}
	if h.left != "" {
		want += "|" + h.left
	}
	switch {
	case code == exitOK && s.alone: // The command also succeeds without the response to this request.
	case s.at > 0 && (code == exitOK || !regexp.MustCompile(want).MatchString(text)):
		fail("want " + want)
	}
	if !strings.HasPrefix(h.args, "join eu-2 --member") {
		return
	}
	has := func(on *fakeHub, kind, namespace, name string) bool {
		on.mu.Lock()
		defer on.mu.Unlock()
		o := &unstructured.Unstructured{}
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		return on.objects[on.key(o)] != nil
	}
	joined := has(hub, "FederatedCluster", "", "eu-2")
	secret := has(hub, "Secret", "kube-admiral-system", "eu-2")
	role := has(member, "ClusterRole", "", "refract-member")
	switch asTheyAre := strings.Contains(h.args, "existing"); {
	case joined && (!secret || !asTheyAre && !role):
		fail("the cluster has joined without credentials")
	case !joined && secret && !strings.Contains(text, "kubectl delete secret -n kube-admiral-system eu-2"):
		fail("the Secret is left, and it does not say so")
	case !joined && role && !strings.Contains(text, "kubectl delete clusterrole refract-member"):
		fail("the account, which goes with its role, is left, and it does not say so")
	}
}

func (h *hung) objects(text string) (objects []*unstructured.Unstructured) {
	h.t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			h.t.Fatal(err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}
