package adversary

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// hostileHub is the manifest of the hostile tenant's objects and rights on the hub.
const hostileHub = `
{apiVersion: v1, kind: Namespace, metadata: {name: evil}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: mallory, namespace: evil}
rules:
- {apiGroups: [apps], resources: [deployments], verbs: ["*"]}
- {apiGroups: [""], resources: [services, configmaps], verbs: ["*"]}
- {apiGroups: [""], resources: [events], verbs: [get, list, watch]}
- {apiGroups: [core.kubeadmiral.io], resources: [overridepolicies, propagationpolicies], verbs: ["*"]}
- {apiGroups: [refract.dev], resources: [serviceinjectionpolicies], verbs: ["*"]}
- {apiGroups: [refract.dev], resources: [propagations], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mallory, namespace: evil}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: mallory}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: everywhere, namespace: evil}, spec: {schedulingMode: Duplicate}}
---
{apiVersion: v1, kind: Secret, metadata: {name: theirs, namespace: evil}, stringData: {key-hush-7f3a9c: value-hush-7f3a9c}}
---
{apiVersion: v1, kind: Service, metadata: {name: db, namespace: evil, annotations: {refract.dev/env-from: secret/theirs}}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: evil, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}, data: {size: "1"}}
`

// hostileMember is the manifest of the hostile tenant's objects and rights on a member.
const hostileMember = `
{apiVersion: v1, kind: Namespace, metadata: {name: evil}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: mallory, namespace: evil}
rules:
- {apiGroups: [""], resources: [configmaps, pods], verbs: ["*"]}
- {apiGroups: [refract.dev], resources: [serviceinjectionpolicies], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mallory, namespace: evil}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: mallory}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]
`

// byImage is an override of an image whose path points to the name of a Secret.
const byImage = `image: [{imagePath: /spec/template/spec/volumes/0/secret/secretName, operations: [{imageComponent: Repository, value: theirs}]}]`

// stored are the objects that mallory stores while no webhook runs.
func stored() []string {
	hostile := func(name, overriders string) string {
		return "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: " + name + "}, spec: {overrideRules: [{overriders: {" + overriders + "}}]}}"
	}
	deployment := func(name string) string {
		return strings.Replace(workload(labelled+", kubeadmiral.io/override-policy-name: "+name, ""), "name: web,", "name: "+name+",", 1)
	}
	return []string{
		operations("stored-12000", 12_000), overridden("stored-12000"),
		operations("stored-20000", 20_000), overridden("stored-20000"),
		operations("most", 1000, 1000, 1000, 1000, 1000), overridden("most"),
		hostile("early", "jsonpatch: [{path: /spec/template/spec/imagePullSecrets, operator: add, value: [{name: theirs}]}]"), deployment("early"),
		hostile("image", byImage), strings.Replace(deployment("image"), "containers:", "volumes: [{name: v, secret: {secretName: mine}}]\n      containers:", 1),
		"{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: db, labels: {" + labelled +
			", kubeadmiral.io/override-policy-name: implicit}}, spec: {service: db, selector: {matchLabels: {a: b}}, env: [{name: A, value: b}]}}",
		configMap("root", labelled, ""),
	}
}

// attack is an action that mallory repeats.
type attack struct {
	name string
	// every is the interval. It is longer for actions that cost the API servers much, since all share two processors.
	every time.Duration
	// do sends the request once and returns the error.
	do func(ctx context.Context, n int) error
	// why is a text that the error of each request must contain; empty if the requests are allowed.
	why string

	begun, taken, refused atomic.Int64
	mu                    sync.Mutex
	first, other          error // first is the first error; other is the last error without an expected text.
}

// heavily is the interval between the requests of attacks with large pods.
const heavily = 200 * time.Millisecond

// busy lists expected texts in the errors of overloaded servers.
var busy = []string{"too many", "it takes too long: try again", "busy", "context deadline exceeded", "Client.Timeout", "has been modified"}

func (a *attack) note(err error) {
	if err == nil {
		a.taken.Add(1)
		return
	}
	a.refused.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == nil {
		a.first = err
	}
	for _, why := range append([]string{a.why}, busy...) {
		if why != "" && strings.Contains(err.Error(), why) {
			return
		}
	}
	a.other = err
}

// judge logs the result of an attack, and fails the test on an unexpected error, or if a forbidden request succeeded.
func (a *attack) judge(t *testing.T) {
	t.Helper()
	t.Logf("%s: begun %d times, answered %d, refused %d: %v", a.name, a.begun.Load(), a.taken.Load()+a.refused.Load(), a.refused.Load(), shortened(a.first))
	switch {
	case a.other != nil:
		t.Errorf("%s: a refusal lacks its reason (want %q): %v", a.name, a.why, shortened(a.other))
	case a.why != "" && a.taken.Load() > 0:
		t.Errorf("%s: %d requests were not refused", a.name, a.taken.Load())
	case a.begun.Load() == 0:
		t.Errorf("%s: the attack did not run", a.name)
	}
}

func shortened(err error) error {
	const most = 300
	if err == nil || len(err.Error()) <= most {
		return err
	}
	return errors.New(err.Error()[:most] + " …")
}

// prepare returns all attacks, and creates the objects that they need.
func (s *siege) prepare() []*attack {
	s.Helper()
	hub, member := s.as("hub"), s.as(injecting)
	for i := range heavyPolicies {
		insist(s.T, member, injectionPolicy(evil, fmt.Sprintf("policy-%03d", i), heavyVariables))
	}
	refused := func(manifest string) func(context.Context, int) error {
		return func(context.Context, int) error { return create(s.T, hub, evil, manifest, client.DryRunAll) }
	}
	changed := func(manifest string) func(context.Context, int) error {
		return func(context.Context, int) error { return replace(s.T, hub, evil, manifest, client.DryRunAll) }
	}
	merge := func(c client.Client, of client.Object, patch string, options ...client.SubResourcePatchOption) func(context.Context, int) error {
		return func(ctx context.Context, n int) error {
			body := client.RawPatch(types.MergePatchType, []byte(strings.ReplaceAll(patch, "N", fmt.Sprint(n))))
			if len(options) > 0 {
				return c.Status().Patch(ctx, of.DeepCopyObject().(client.Object), body, options...)
			}
			return c.Patch(ctx, of.DeepCopyObject().(client.Object), body)
		}
	}
	overrider := func(overriders string) string {
		return "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: refused}, spec: {overrideRules: [{overriders: {" + overriders + "}}]}}"
	}
	patched := func(patch string) func(context.Context, int) error {
		return refused(overrider("jsonpatch: [" + patch + "]"))
	}
	ofStatus := client.FieldOwner(mallory)
	heavy := func(ctx context.Context, _ int) error {
		_, err := tryPod(ctx, member, evil, heavyContainers)
		return err
	}
	return []*attack{
		{name: "a policy with too many operations", every: 5 * time.Second, why: "5000 items together", do: refused(operations("more", 1000, 1000, 1000, 1000, 1000, 1))},
		{name: "a rule with too many operations", every: 10 * time.Second, why: "must have at most 1000 items", do: refused(operations("more", 20_000))},
		{name: "changes of a policy with the maximum number of operations", every: 5 * time.Second, do: func(_ context.Context, n int) error {
			return replace(s.T, hub, evil, strings.ReplaceAll(operations("most", 1000, 1000, 1000, 1000, 1000), "/data/x", fmt.Sprintf("/data/x%d", n%7)))
		}},
		{name: "changes of an object with a stored policy", every: time.Second, do: merge(hub, named("v1", "ConfigMap", "stored-20000"), `{"data":{"size":"N"}}`)},
		{name: "an object with a policy of maximum size", every: time.Second, do: merge(hub, named("v1", "ConfigMap", "most"), `{"data":{"size":"N"}}`)},
		{name: "a review of a heavy policy", every: 2 * time.Second, do: func(_ context.Context, n int) error {
			return create(s.T, hub, evil, operations(fmt.Sprint("heavy-", n), 1000, 1000, 1000, 1000, 1000), client.DryRunAll)
		}},
		{name: "an override that names a Secret", every: time.Second, why: "Secret evil/theirs", do: patched(`{path: /spec/template/spec/imagePullSecrets, operator: add, value: [{name: theirs}]}`)},
		{name: "an image path that names a Secret", every: time.Second, why: "Secret evil/theirs", do: changed(strings.Replace(overrider(byImage+", labels: [{value: {a: b}}]"), "refused", "image", 1))},
		{name: "an override that makes an injection policy inject a Secret", every: time.Second, why: "Secret evil/theirs", do: refused(strings.Replace(overrider(
			"jsonpatch: [{path: /spec/implicit, operator: add, value: true}]"), "refused", "implicit", 1))},
		{name: "an approval of a stored reference", every: time.Second, why: "Secret evil/theirs",
			do: merge(hub, named("core.kubeadmiral.io/v1alpha1", "OverridePolicy", "early"), `{"metadata":{"annotations":{"refract.dev/approve-references":"N"}}}`)},
		{name: "an override of finalizers", every: time.Second, why: "may not be overridden", do: patched(`{path: /metadata/finalizers, operator: add, value: [example.com/hold]}`)},
		{name: "an override of the namespace", every: time.Second, why: "may not be overridden", do: patched(`{path: /metadata/namespace, value: kube-system}`)},
		{name: "a mark in the status of a policy", every: time.Second, why: "forbidden",
			do: merge(hub, named("core.kubeadmiral.io/v1alpha1", "OverridePolicy", "early"), `{"status":{"references":{"observedGeneration":1}}}`, ofStatus)},
		{name: "a forged report", every: time.Second, why: "forbidden", do: merge(hub, named("refract.dev/v1alpha1", "Propagation", "mine.configmaps"), `{"status":{"clusters":[]}}`, ofStatus)},
		{name: "another endpoint of a cluster", every: time.Second, why: "forbidden",
			do: merge(hub, named("core.kubeadmiral.io/v1alpha1", "FederatedCluster", injecting), `{"spec":{"apiEndpoint":"https://127.0.0.1:1"}}`)},
		{name: "the adoption of what a cluster makes for itself", every: 5 * time.Second, do: merge(hub, named("v1", "ConfigMap", "kube-root-ca.crt"),
			`{"metadata":{"labels":{"kubeadmiral.io/propagation-policy-name":"everywhere"},"annotations":{"kubeadmiral.io/conflict-resolution":"adopt","try":"N"}}}`)},
		{name: "a copy written in Refract's name", every: time.Second, do: func(ctx context.Context, n int) error {
			is := named("v1", "ConfigMap", "mine")
			if err := member.Get(ctx, client.ObjectKeyFromObject(is), is); err != nil {
				return err
			}
			_, err := forge(ctx, member, is, fmt.Sprint("forged-", n))
			return err
		}},
		{name: "many deletions", every: 10 * time.Second, do: s.deleteMany(hub)},
		{name: "heavy pods", every: heavily, do: heavy},
		{name: "heavy pods beside them", every: heavily, do: heavy},
		{name: "heavy pods beside those", every: heavily, do: heavy},
		{name: "heavy pods beside all of them", every: heavily, do: heavy},
		{name: "reviews without an API server", every: 300 * time.Millisecond, do: s.anonymous(0)},
		{name: "reviews of pods without an API server", every: 300 * time.Millisecond, do: s.anonymous(1)},
		{name: "connections on which little comes", every: 5 * time.Second, do: s.slowly},
	}
}

// named returns an object of mallory's namespace, for a patch.
func named(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	if kind != "FederatedCluster" {
		u.SetNamespace(evil)
	}
	return u
}

// attack starts all attacks. stop ends them, and waits until they have ended.
func (s *siege) attack(all []*attack) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var group sync.WaitGroup
	for _, a := range all {
		group.Go(func() {
			every(ctx, a.every, func(n int) {
				a.begun.Add(1) // Counted here, because a client repeats a request by itself if the answer says to retry later.
				err := a.do(ctx, n)
				if ctx.Err() != nil {
					return // Canceled by stop.
				}
				if err != nil {
					s.note(err.Error())
				}
				a.note(err)
			})
		})
	}
	return func() { cancel(); group.Wait() }
}

// deleteMany creates many objects at once, and removes their copies: in one round it removes the objects' policy label,
// in the next it deletes the objects.
func (s *siege) deleteMany(hub client.Client) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		var all sync.WaitGroup
		errs := make([]error, 2*many)
		for i := range many {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: evil, Name: fmt.Sprintf("brief-%d", i)}}
			all.Go(func() {
				switch n % 3 {
				case 0:
					o.Labels = map[string]string{"kubeadmiral.io/propagation-policy-name": "everywhere"}
					errs[i] = client.IgnoreAlreadyExists(hub.Create(ctx, o))
				case 1:
					errs[i] = client.IgnoreNotFound(hub.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))))
				case 2:
					errs[i] = client.IgnoreNotFound(hub.Delete(ctx, o))
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
}

// outsider is a client that can reach the port, but has no credentials.
var outsider = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 8,
}}

// anonymous sends AdmissionReviews to a webhook without the API server's client certificate.
func (s *siege) anonymous(webhook int) func(context.Context, int) error {
	path, kind := "/validate/policies", "OverridePolicy"
	if webhook == 1 {
		path, kind = "/inject/pods", "Pod"
	}
	review := func(object string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","namespace":%q,"name":"x",
"userInfo":{"username":%q},"kind":{"kind":%q},"object":%s}}`, evil, mallory, kind, object)
	}
	bodies := [][]byte{
		review(`{"apiVersion":"core.kubeadmiral.io/v1alpha1","kind":"OverridePolicy","metadata":{"namespace":"evil","name":"x"},"spec":{"overrideRules":[{"overriders":{"jsonpatch":[` +
			strings.TrimSuffix(strings.Repeat(`{"path":"/data/x","value":"1"},`, 20_000), ",") + `]}}]}}`),
		bytes.Repeat([]byte("["), 1<<20),
		review(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"evil","name":"x"},"spec":{"containers":"none"}}`),
		review(`{"a":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`),
		review(`{"metadata":{"labels":{` + strings.TrimSuffix(strings.Repeat(`"a":"b",`, 500_000), ",") + `}}}`),
		bytes.Repeat([]byte(" "), 9<<20),
	}
	return func(ctx context.Context, n int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.addresses[webhook]+path, bytes.NewReader(bodies[n%len(bodies)]))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := outsider.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				s.note(err.Error())
			}
			return nil // The webhook closes the connection of a request that is too large.
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		s.note(string(text))
		return err
	}
}

// slowly opens connections, and sends one byte a second on each until the server closes it.
func (s *siege) slowly(ctx context.Context, _ int) error {
	for _, address := range s.addresses {
		for range 20 {
			conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil //nolint:nilerr // The server has reached its maximum of connections.
			}
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			go func() {
				defer end()
				defer conn.Close()
				_, err := io.WriteString(conn, "POST /validate/policies HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
				for err == nil && ctx.Err() == nil {
					time.Sleep(time.Second) //nolint:forbidigo // The delay is the attack.
					_, err = io.WriteString(conn, "x")
				}
			}()
		}
	}
	return nil
}

// rogue starts a member that sends invalid responses, some of which never end, and returns the access to it.
func rogue(t *testing.T) harness.Access {
	t.Helper()
	var n atomic.Int64
	types := map[string]string{
		"/version": `{"major":"1","minor":"35","gitVersion":"v1.35.0"}`, "/readyz": "ok", "/healthz": "ok", "/livez": "ok",
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["create","delete","get","list","patch","update","watch"]},
			{"name":"namespaces","namespaced":false,"kind":"Namespace","verbs":["create","delete","get","list","patch","update","watch"]},
			{"name":"secrets","namespaced":true,"kind":"Secret","verbs":["create","delete","get","list","patch","update","watch"]}]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	}
	rubbish := []string{
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":7,"labels":["a"]}},"x",null]}`,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"more"},"items":[]}`,
		strings.Repeat(`{"a":`, 5000), `[[[[`, "\x00\xff",
		`{"kind":"Status","status":"Success","code":"two hundred"}`,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if text := types[r.URL.Path]; text != "" {
			_, _ = io.WriteString(w, text) // An error means that the client has disconnected.
			return
		}
		at := int(n.Add(1)) % (len(rubbish) + 1)
		if at < len(rubbish) {
			_, _ = io.WriteString(w, rubbish[at])
			return
		}
		more := strings.Repeat("x", 64<<10)
		_, err := io.WriteString(w, `{"kind":"`)
		for err == nil {
			_, err = io.WriteString(w, more)
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return harness.Access{
		Endpoint: server.URL, Token: "token-of-rogue",
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}
