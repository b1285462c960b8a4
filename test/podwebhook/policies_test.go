package podwebhook

import (
	"context"

	"refract.dev/test/harness"

	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/hub"
)

// trusted may have handed out what he may not read.
const trusted = "system:serviceaccount:gitops:applier"

// ofAuthors is a namespace that a test writes to. Bob is an author there, who may
// read no Secret; so is trusted.
const ofAuthors = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author, namespace: NAMESPACE}
rules:
- {apiGroups: [refract.dev], resources: [serviceinjectionpolicies], verbs: ["*"]}
- {apiGroups: [""], resources: [services, services/status], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
- {kind: ServiceAccount, namespace: gitops, name: applier}
`

// authors are people who write policies and Services in a cluster.
type authors struct{ *world }

// TestPolicies has policies and Services written by those who may, and those who
// may not.
func TestPolicies(t *testing.T) {
	t.Parallel()
	w := &authors{begin(t)}
	if err := hub.InstallServiceAdmission(t.Context(), w.cfg, nil, trusted); err != nil {
		t.Fatal(err)
	}
	stop := w.serve(t)
	w.takes(t, "Where to try.", strings.ReplaceAll(ofAuthors, "NAMESPACE", "early"), nil, "apply", "-f", "-")
	harness.Eventually(t, "the API server asks about policies", func(context.Context) error {
		out, err := w.do(policy("early", "number", `env: [{name: A, value: 1}]`), "create", "--dry-run=server", "-o", "yaml", "-f", "-")
		if err != nil || !strings.Contains(out, `value: "1"`) {
			return fmt.Errorf("a number stays one: %w: %s", err, out)
		}
		if out, err = w.do(policy("early", "broken", `env: [{name: "A=B"}]`), "create", "--dry-run=server", "-f", "-"); err == nil {
			return fmt.Errorf("a broken policy is taken: %s", out)
		}
		return nil
	})
	harness.Eventually(t, "the API server heeds the policy about Services", func(context.Context) error {
		if out, err := w.do(service("early", "db", `{refract.dev/env-from: secret/a}`), "create", "--dry-run=server", "--as=bob", "-f", "-"); err == nil {
			return fmt.Errorf("bob's Service is taken: %s", out)
		}
		return nil
	})
	t.Run("Numbers", w.numbers)
	t.Run("Refusals", w.refusals)
	t.Run("Warnings", w.warnings)
	t.Run("Secrets", w.secrets)
	t.Run("Finalizers", w.finalizers)
	t.Run("Services", w.services)
	t.Run("Implicit", w.implicit)
	t.Run("Consumers", w.consumers)
	t.Run("Forged", w.forged)
	t.Run("Mountable", w.mountable)
	stop()
	t.Run("Down", w.policiesDown)
}

// place makes the namespace of a test.
func (w *authors) place(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	w.takes(t, "A namespace of its own.", strings.ReplaceAll(ofAuthors, "NAMESPACE", name), nil, "apply", "-f", "-")
	w.takes(t, "Without one there are no pods, not even to try.", "", nil, "wait", "--for=create", "serviceaccount/default", "-n", name)
	return name
}

// policy is one of a namespace, with the fields of a spec besides the selector.
func policy(namespace, name, spec string) string {
	return fmt.Sprintf("{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {namespace: %s, name: %s}, "+
		"spec: {selector: {matchLabels: {role: frontend}}, %s}}", namespace, name, spec)
}

// service is one of a namespace, with annotations.
func service(namespace, name, annotations string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: %s, annotations: %s}, spec: {ports: [{port: 6379}]}}",
		namespace, name, annotations)
}

// takes runs kubectl, which must succeed and print all of these.
func (w *authors) takes(t *testing.T, reason, stdin string, want []string, args ...string) {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err != nil {
		t.Errorf("%s\nkubectl %s: %v\n%s", reason, strings.Join(args, " "), err, out)
	}
	harness.WantAll(t, reason, out, want)
}

// refuses runs kubectl, which must fail and print all of these.
func (w *authors) refuses(t *testing.T, reason, stdin string, want []string, args ...string) {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err == nil {
		t.Errorf("%s\nkubectl %s must fail:\n%s", reason, strings.Join(args, " "), out)
	}
	harness.WantAll(t, reason, out, want)
}

// read returns a policy as it is stored.
func (w *authors) read(t *testing.T, namespace, name string) *refractv1beta1.ServiceInjectionPolicy {
	t.Helper()
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// spoiler makes pods invalid that have a certain volume, as an API server might
// that is older than what Refract knows.
const spoiler = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: spoiler}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - name: has-the-volume
    expression: object.spec.?volumes.orValue([]).exists(v, v.name == 'spoilt')
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "replace", path: "/spec/containers/0/volumeMounts/1/mountPath", value: "/a"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: spoiler}
spec: {policyName: spoiler}
`

// numbers: what is stored says what containers get.
func (w *authors) numbers(t *testing.T) {
	ns := w.place(t)
	const proposal = `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: allow-database, namespace: NAMESPACE}
spec:
  service: db
  selector:
    matchLabels:
      role: frontend
  env:
  - name: DB_PORT
    value: 6379
  volumeMounts:
  - mountPath: /cache
    name: cache-volume
  volumes:
  - name: cache-volume
    emptyDir: {}
`
	for _, how := range [][]string{{"apply"}, {"apply"}, {"apply", "--server-side", "--force-conflicts"}, {"replace"}} {
		w.takes(t, "The proposal's own example, however it is written.", strings.ReplaceAll(proposal, "NAMESPACE", ns), nil, append(how, "-f", "-")...)
		out, err := w.do("", "get", "sip", "allow-database", "-n", ns, "-o", "jsonpath={.spec.env}")
		if want := `[{"name":"DB_PORT","value":"6379"}]`; err != nil || out != want {
			t.Errorf("kubectl %s: what is stored is %s, %v, want %s", how, out, err, want)
		}
	}
	for _, n := range []string{"9007199254740993", "-9007199254740993", "12345678901234567890", "123456789012345678901234567890"} {
		const hint = "put quotes around the number: it is beyond"
		w.refuses(t, "Digits may have been lost on the way.", policy(ns, "long", `env: [{name: A, value: `+n+`}]`), []string{hint, "spec.env[0].value"}, "apply", "-f", "-")
		w.takes(t, "None are lost of a text.", policy(ns, "long", `env: [{name: A, value: "`+n+`"}]`), nil, "apply", "-f", "-")
	}
	w.takes(t, "So far all is well.", policy(ns, "exact", `env: [{name: A, value: 9007199254740991}]`), nil, "apply", "-f", "-")
	w.refuses(t, "Only whole numbers are meant.", policy(ns, "float", `env: [{name: A, value: 1.5}]`), []string{"spec.env[0].value"}, "apply", "-f", "-")
}

func (w *authors) refusals(t *testing.T) {
	ns := w.place(t)
	w.refuses(t, "As an API server does it, each at its field.",
		policy(ns, "wrong", `env: [{name: "A=B", value: x}], volumes: [{name: Big, emptyDir: {}}]`),
		[]string{`The ServiceInjectionPolicy "wrong" is invalid`, "spec.env[0].name", "spec.volumes[0].name"}, "apply", "-f", "-")
	w.takes(t, "Somebody else has a hand in pods.", spoiler, nil, "apply", "-f", "-")
	harness.Eventually(t, "a pod cannot have what the policy says, and the API server says where", func(context.Context) error {
		out, err := w.do(policy(ns, "spoilt", `env: [{name: A, value: b}], volumes: [{name: v, emptyDir: {}}, {name: spoilt, emptyDir: {}}], `+
			`volumeMounts: [{name: v, mountPath: /a}, {name: spoilt, mountPath: /b}]`), "apply", "--dry-run=server", "-f", "-")
		const want = `The ServiceInjectionPolicy "spoilt" is invalid: spec.volumeMounts[1].mountPath: Invalid value: "/a": must be unique`
		if err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("want %q in\n%s", want, out)
		}
		return nil
	})
	w.takes(t, "Others are free of it.", "", nil, "delete", "mutatingadmissionpolicybinding/spoiler", "mutatingadmissionpolicy/spoiler")
	w.takes(t, "A mount may be of a volume that only pods have.",
		policy(ns, "own", `volumeMounts: [{name: data, mountPath: /a, subPath: x}, {name: data, mountPath: /b}]`), []string{"Warning: spec.volumeMounts[0].name"}, "apply", "-f", "-")
	out, err := w.do("", "get", "pods", "-n", ns, "-o", "name")
	if err != nil || strings.Contains(out, "pod/") {
		t.Errorf("Nothing is left of pods that were tried out: %v\n%s", err, out)
	}
}

func (w *authors) warnings(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "There is one already.", policy(ns, "z-first", `service: db, env: [{name: DB_PORT, value: 6379}]`), nil, "apply", "-f", "-")
	harness.Eventually(t, "the contradiction is told", func(context.Context) error {
		out, err := w.do(policy(ns, "a-second", `env: [{name: DB_PORT, value: 7000}]`), "apply", "--dry-run=server", "-f", "-")
		const want = "Warning: a pod with the label role=frontend is selected by both z-first and a-second, which differ in variable DB_PORT: " +
			"the former is applied and the latter is left out for it"
		if err != nil || !strings.Contains(out, want) {
			return fmt.Errorf("%w: want %q in\n%s", err, want, out)
		}
		return nil
	})
	w.takes(t, "Pods would wait for what is not there.", policy(ns, "missing", `envFrom: [{secretRef: {name: db-cred}}]`),
		[]string{"Warning: spec.envFrom[0].secretRef.name: there is no Secret db-cred yet"}, "apply", "-f", "-")
	w.takes(t, "Now it is.", "", nil, "create", "secret", "generic", "db-cred", "-n", ns, "--from-literal=user=u")
	w.takes(t, "But not all of it.", policy(ns, "key", `env: [{name: A, valueFrom: {secretKeyRef: {name: db-cred, key: password}}}]`),
		[]string{"Warning: spec.env[0].valueFrom.secretKeyRef.name: Secret db-cred has no password"}, "apply", "-f", "-")
	w.takes(t, "It may well be meant.", strings.ReplaceAll(policy(ns, "all", `env: [{name: B, value: b}]`), "{matchLabels: {role: frontend}}", "{}"),
		[]string{"Warning: spec.selector: selects every pod of the namespace"}, "apply", "-f", "-")
	w.takes(t, "The namespace becomes strict.", "", nil, "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted")
	const host = `volumes: [{name: host, hostPath: {path: /etc}}], volumeMounts: [{name: host, mountPath: /host}]`
	why := "pods of namespace " + ns + ` with these items would be refused: violates PodSecurity "restricted:latest": `
	harness.Eventually(t, "it is, and refuses what makes all pods be refused", func(context.Context) error {
		out, err := w.do(policy(ns, "host", host), "apply", "--dry-run=server", "-f", "-")
		if want := `The ServiceInjectionPolicy "host" is invalid: spec: ` + why; err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("%w: want %q in\n%s", err, want, out)
		}
		return nil
	})
	w.takes(t, "Nothing is injected yet.", policy(ns, "host", host+", mode: Audit"), []string{"Warning: spec: with the mode Enforce, " + why}, "apply", "-f", "-")
	w.takes(t, "Nor is anything ever, where the cluster's own pods are.", policy("kube-system", "plain", host),
		[]string{"Warning: metadata.namespace: nothing is injected into pods of namespace kube-system"}, "apply", "--dry-run=server", "-f", "-")
	out, err := w.do(policy(ns, "plain", `env: [{name: C, value: c}]`), "apply", "-f", "-")
	if err != nil || strings.Contains(out, "Warning") {
		t.Errorf("A policy that does not violate anything gets no warning of it: %v\n%s", err, out)
	}
}

func (w *authors) secrets(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "Somebody's Secret.", "", nil, "create", "secret", "generic", "db-cred", "-n", ns, "--from-literal=password=p")
	handsOut := policy(ns, "db", `env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db-cred, key: password}}}]`)
	w.refuses(t, "Bob would read in a pod what he may not read.", handsOut,
		[]string{"Forbidden", "Secret db-cred", `user "bob" may not get in namespace ` + ns, "--trusted-authors=bob"}, "create", "-f", "-", "--as=bob")
	w.takes(t, "What is trusted need not read.", handsOut, nil, "create", "-f", "-", "--as="+trusted)
	w.takes(t, "Bob may do what hands out nothing else.", "", nil, "patch", "sip", "db", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"metadata":{"labels":{"a":"b"}},"spec":{"rollout":{"strategy":"None"},"volumes":[{"name":"v","emptyDir":{}}]}}`)
	for reason, patch := range map[string]string{
		"What prints GREETING prints the password.": `{"spec":{"env":[{"name":"GREETING","valueFrom":{"secretKeyRef":{"name":"db-cred","key":"password"}}}]}}`,
		"What expands it has it.":                   `{"spec":{"env":[{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"db-cred","key":"password"}}},{"name":"GREETING","value":"$(PASSWORD)"}]}}`,
		"Other containers have it.":                 `{"spec":{"containers":{"include":["web"]}}}`,
		"As files.":                                 `{"spec":{"volumes":[{"name":"v","secret":{"secretName":"db-cred"}}]}}`,
	} {
		w.refuses(t, reason, "", []string{"Secret db-cred"}, "patch", "sip", "db", "-n", ns, "--as=bob", "--type=merge", "-p", patch)
	}
	for _, args := range [][]string{
		{"create", "role", "reader", "-n", ns, "--verb=get", "--resource=secrets", "--resource-name=db-cred"},
		{"create", "rolebinding", "reader", "-n", ns, "--role=reader", "--user=bob"},
	} {
		w.takes(t, "Bob is given the right.", "", nil, args...)
	}
	harness.Eventually(t, "bob's right is known", func(context.Context) error {
		out, err := w.do("", "patch", "sip", "db", "-n", ns, "--as=bob", "--type=merge", "-p", `{"spec":{"containers":{"include":["web"]}}}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// finalizers: a policy that is being deleted is in effect for as long as something
// holds it.
func (w *authors) finalizers(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "One with a finalizer.", policy(ns, "held", `env: [{name: A, value: b}]`), nil, "create", "-f", "-", "--as=bob")
	w.takes(t, "Which bob may write.", "", nil, "patch", "sip", "held", "-n", ns, "--as=bob", "--type=merge", "-p", `{"metadata":{"finalizers":["bob.example/hold"]}}`)
	w.takes(t, "It is to go.", "", nil, "delete", "sip", "held", "-n", ns, "--as=bob", "--wait=false")
	w.refuses(t, "And does not become another on its way.", "", []string{"Secret db-cred"}, "patch", "sip", "held", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"spec":{"envFrom":[{"secretRef":{"name":"db-cred"}}]}}`)
	w.takes(t, "It goes.", "", nil, "patch", "sip", "held", "-n", ns, "--as=bob", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// services: what the annotations of a Service hand out is asked about when they are
// written.
func (w *authors) services(t *testing.T) {
	ns := w.place(t)
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprintf("secret/s%d", i)
	}
	for name, tc := range map[string]struct {
		reason, annotations string
		denied              []string
	}{
		"None":       {reason: "Most Services say nothing.", annotations: `{a: secret/db-cred}`},
		"Plain":      {reason: "These are nobody's secret.", annotations: `{refract.dev/env: '{"A":"b"}', refract.dev/derive: "host,port", refract.dev/prefix: DB_}`},
		"EnvFrom":    {"Bob would read it in a pod.", `{refract.dev/env-from: secret/db-cred}`, []string{"secret/db-cred would be given to the consumers of this Service", "bob may not get it in namespace " + ns}},
		"Mount":      {"As a file.", `{refract.dev/mount: "secret/db-tls:/etc/tls:ro"}`, []string{"secret/db-tls would be given"}},
		"Second":     {"Each is asked about.", `{refract.dev/env-from: "configmap/kube-root-ca.crt,configmap/settings"}`, []string{"configmap/settings would be given"}},
		"Both":       {"In both places.", `{refract.dev/env-from: "configmap/kube-root-ca.crt", refract.dev/mount: "configmap/settings:/s"}`, []string{"configmap/settings would be given"}},
		"Spaces":     {"However it is written.", "{refract.dev/env-from: \" ,\\t secret/db-cred\\n,\"}", []string{"secret/db-cred would be given"}},
		"OtherSpace": {"Of whatever kind the space is.", `{refract.dev/env-from: "\u3000secret/db-cred\u00a0"}`, []string{"secret/db-cred would be given"}},
		"Unreadable": {reason: "What nobody understands is handed out by nobody.", annotations: `{refract.dev/env-from: "Secret/db-cred,secrets/db-cred"}`},
		"Many":       {"There is room for so many questions.", `{refract.dev/env-from: "` + strings.Join(many, ",") + `"}`, []string{"17 Secrets and ConfigMaps are newly named"}},
		"Sixteen":    {"The last is asked about, too.", `{refract.dev/env-from: "` + strings.Join(many[:16], ",") + `"}`, []string{"secret/s0 would be given"}},
	} {
		text := service(ns, "db-"+strings.ToLower(name), tc.annotations)
		if tc.denied == nil {
			w.takes(t, tc.reason, text, nil, "create", "-f", "-", "--as=bob")
			continue
		}
		w.refuses(t, tc.reason, text, tc.denied, "create", "-f", "-", "--as=bob")
		w.takes(t, "Who is trusted need not read.", text, nil, "create", "-f", "-", "--as="+trusted)
	}
	w.takes(t, "Bob may write what leaves the annotations alone.", "", nil, "annotate", "service", "db-envfrom", "-n", ns, "a=b", "--as=bob")
	w.takes(t, "Or takes something away.", "", nil, "annotate", "service", "db-second", "-n", ns, "refract.dev/env-from=configmap/settings", "--overwrite", "--as=bob")
	w.refuses(t, "But not names it elsewhere as well: what serves files there shows them.", "", []string{"secret/db-cred would be given"},
		"annotate", "service", "db-envfrom", "-n", ns, "refract.dev/mount=secret/db-cred:/usr/share/nginx/html", "--as=bob")
	for _, entry := range []string{"secret/db-tls:/usr/share/nginx/html:ro", "secret/db-tls:/etc/tls"} {
		w.refuses(t, "Or at another path, or in another way.", "", []string{"secret/db-tls would be given"},
			"annotate", "service", "db-mount", "-n", ns, "refract.dev/mount="+entry, "--overwrite", "--as=bob")
	}
	w.takes(t, "The order of entries means nothing, nor does space.", "", nil,
		"annotate", "service", "db-mount", "-n", ns, "refract.dev/mount=configmap/kube-root-ca.crt:/ca, secret/db-tls:/etc/tls:ro ", "--overwrite", "--as=bob")
	w.takes(t, "What variables are called that are derived is no matter of Secrets.", "", nil,
		"annotate", "service", "db-mount", "-n", ns, "refract.dev/prefix=DB_", "refract.dev/derive=port", "--as=bob")
	w.refuses(t, "But not add to them.", "", []string{"secret/db-tls would be given"},
		"annotate", "service", "db-envfrom", "-n", ns, "refract.dev/env-from=secret/db-cred,secret/db-tls", "--overwrite", "--as=bob")
	w.refuses(t, "Nor by way of the status.", "", []string{"secret/db-tls would be given"},
		"patch", "service", "db-none", "-n", ns, "--subresource=status", "--type=merge", "-p", `{"metadata":{"annotations":{"refract.dev/env-from":"secret/db-tls"}}}`, "--as=bob")
	for _, args := range [][]string{
		{"create", "role", "reader", "-n", ns, "--verb=get", "--resource=secrets,configmaps", "--resource-name=db-tls", "--resource-name=settings"},
		{"create", "rolebinding", "reader", "-n", ns, "--role=reader", "--user=bob"},
	} {
		w.takes(t, "Bob is given the right to some.", "", nil, args...)
	}
	harness.Eventually(t, "bob's right is known", func(context.Context) error {
		out, err := w.do("", "annotate", "service", "db-none", "-n", ns, "refract.dev/env-from=secret/db-tls,configmap/settings", "--overwrite", "--as=bob")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	w.takes(t, "Administrators may read all, and name as much as they like.", service(ns, "db-much", `{refract.dev/env-from: "`+strings.Join(many, ",")+`"}`), nil, "create", "-f", "-")
}

// implicit: the status of a policy follows its Service, and what others write there
// stays.
func (w *authors) implicit(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "A slip in the name is seen at once.", policy(ns, "db", `service: db, implicit: true, env: [{name: OWN, value: 1}]`),
		[]string{"Warning: spec.service: there is no Service db yet"}, "apply", "-f", "-")
	type state struct {
		Reason            string
		Service, Together []string
	}
	is := func() state {
		p := w.read(t, ns, "db")
		out := state{Service: names(p.Status.FromService), Together: names(p.Status.Effective)}
		if c := meta.FindStatusCondition(p.Status.Conditions, refractv1beta1.ConditionServiceFound); c != nil && c.ObservedGeneration == p.Generation {
			out.Reason = c.Reason
		}
		return out
	}
	becomes := func(reason string, want state) {
		t.Helper()
		begun := time.Now()
		harness.Eventually(t, reason, func(context.Context) error {
			if diff := cmp.Diff(want, is()); diff != "" {
				return errors.New("-want, +got:\n" + diff)
			}
			return nil
		})
		if took := time.Since(begun); took > 20*time.Second { // A second, on a machine that has nothing else to do.
			t.Errorf("Waiting until %s: it took %s", reason, took)
		}
	}
	becomes("the Service is missed", state{Reason: "NotFound", Together: []string{"OWN=1"}})
	w.takes(t, "The rest of the status is somebody else's.", "", nil, "patch", "sip", "db", "-n", ns, "--subresource=status", "--type=merge",
		"-p", `{"status":{"conditions":[{"type":"RolledOut","status":"True","reason":"Complete","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"},`+
			`{"type":"ServiceFound","status":"True","reason":"Forged","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}],`+
			`"fromService":{"envFrom":[{"secretRef":{"name":"forged"}}]}}}`)
	becomes("what is forged is put right", state{Reason: "NotFound", Together: []string{"OWN=1"}})
	w.takes(t, "It comes.", service(ns, "db", `{refract.dev/env: '{"OWN":"2","OTHER":3}', refract.dev/derive: port}`), nil, "apply", "-f", "-")
	becomes("the Service is found", state{"Found", []string{"PORT=6379", "OWN=2", "OTHER=3"}, []string{"OWN=1", "PORT=6379", "OTHER=3"}})
	w.takes(t, "It says something else.", "", nil, "patch", "service", "db", "-n", ns, "--type=json", "-p", `[{"op":"replace","path":"/spec/ports/0/port","value":6380}]`)
	becomes("the port changes", state{"Found", []string{"PORT=6380", "OWN=2", "OTHER=3"}, []string{"OWN=1", "PORT=6380", "OTHER=3"}})
	w.takes(t, "It makes a mistake.", "", nil, "annotate", "service", "db", "-n", ns, "refract.dev/derive=prot", "--overwrite")
	becomes("the mistake is told, and nothing taken away", state{"InvalidAnnotations", []string{"PORT=6380", "OWN=2", "OTHER=3"}, []string{"OWN=1", "PORT=6380", "OTHER=3"}})
	harness.Eventually(t, "it stands in an event", func(context.Context) error {
		out, err := w.do("", "get", "events", "-n", ns, "-o", `jsonpath={range .items[*]}{.reason}{" "}{end}`)
		if err != nil || !strings.Contains(out, "ServiceInvalidAnnotations") || !strings.Contains(out, "ServiceFound") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	w.takes(t, "It goes.", "", nil, "delete", "service", "db", "-n", ns)
	becomes("the Service is missed again", state{Reason: "NotFound", Together: []string{"OWN=1"}})
	w.takes(t, "The policy does without.", "", nil, "patch", "sip", "db", "-n", ns, "--type=merge", "-p", `{"spec":{"implicit":false}}`)
	becomes("nothing is left of it", state{})
	if p := w.read(t, ns, "db"); meta.FindStatusCondition(p.Status.Conditions, refractv1beta1.ConditionRolledOut) == nil {
		t.Errorf("The rest of the status stays: got %+v", p.Status)
	}
}

// consumers: who writes a policy chooses who gets what its Service names.
func (w *authors) consumers(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "Somebody publishes a Secret.", service(ns, "db", `{refract.dev/env-from: secret/db-cred, refract.dev/derive: port}`), nil, "create", "-f", "-")
	w.refuses(t, "Bob would read it in a pod of his.", policy(ns, "mine", `service: db, implicit: true`),
		[]string{"Forbidden", "Secret db-cred (named by Service db)", `user "bob" may not get in namespace ` + ns}, "create", "-f", "-", "--as=bob")
	w.takes(t, "Not so if he takes over nothing.", policy(ns, "mine", `service: db, env: [{name: A, value: b}]`), nil, "create", "-f", "-", "--as=bob")
	w.refuses(t, "Nor later.", "", []string{"Secret db-cred"}, "patch", "sip", "mine", "-n", ns, "--as=bob", "--type=merge", "-p", `{"spec":{"implicit":true}}`)
	w.takes(t, "Somebody may.", "", nil, "patch", "sip", "mine", "-n", ns, "--type=merge", "-p", `{"spec":{"implicit":true}}`)
	w.refuses(t, "Other containers.", "", []string{"Secret db-cred"}, "patch", "sip", "mine", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"spec":{"containers":{"include":["bobs"]}}}`)
	w.takes(t, "The same pods get something else as well.", "", nil, "patch", "sip", "mine", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"spec":{"env":[{"name":"A","value":"c"}]}}`)
	w.takes(t, "Who is trusted need not read.", policy(ns, "theirs", `service: db, implicit: true`), nil, "create", "-f", "-", "--as="+trusted)
}

// statusAuthor may write the status of policies.
const statusAuthor = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: status, namespace: NAMESPACE}
rules: [{apiGroups: [refract.dev], resources: [serviceinjectionpolicies/status], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: status, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: status}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}]
`

// forged: what is injected because a Service says so, Refract alone writes down.
func (w *authors) forged(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "Carol reports on policies.", strings.ReplaceAll(statusAuthor, "NAMESPACE", ns), nil, "apply", "-f", "-")
	w.takes(t, "A Service that is wrong.", service(ns, "db", `{refract.dev/env: not json}`), nil, "create", "-f", "-")
	w.takes(t, "A policy.", policy(ns, "db", `service: db, implicit: true, env: [{name: A, value: b}]`), nil, "create", "-f", "-")
	patch := func(status string) []string {
		return []string{"patch", "sip", "db", "-n", ns, "--subresource=status", "--type=merge", "--as=carol", "-p", `{"status":` + status + `}`}
	}
	harness.Eventually(t, "carol's right is known", func(context.Context) error {
		out, err := w.do("", patch(`{"matched":7}`)...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for _, part := range []string{"fromService", "effective"} {
		w.refuses(t, "Nobody was asked whether carol may read it.", "", []string{"status.fromService and status.effective", "carol may not write them"},
			patch(`{"`+part+`":{"envFrom":[{"secretRef":{"name":"db-cred"}}]}}`)...)
	}
	w.takes(t, "The rest is not the API server's to judge.", "", nil, patch(`{"matched":8,"hash":"a"}`)...)
	w.takes(t, "Refract's own account may write what nobody can read.", "", nil, "patch", "sip", "db", "-n", ns, "--subresource=status", "--type=merge",
		"-p", `{"status":{"fromService":{"env":"none"}}}`)
	w.takes(t, "The Service is put right.", "", nil, "annotate", "service", "db", "-n", ns, `refract.dev/env={"C":"d"}`, "--overwrite")
	harness.Eventually(t, "one policy that nobody can read is put right, and stops no other", func(context.Context) error {
		out, err := w.do("", "get", "sip", "db", "-n", ns, "-o", "jsonpath={.status.fromService}")
		if want := `{"env":[{"name":"C","value":"d"}]}`; err != nil || out != want {
			return fmt.Errorf("%w: got %s, want %s", err, out, want)
		}
		return nil
	})
}

// mountable: a ServiceAccount may have certain Secrets alone.
func (w *authors) mountable(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "Of none.", "", nil, "annotate", "serviceaccount", "default", "-n", ns, "kubernetes.io/enforce-mountable-secrets=true")
	harness.Eventually(t, "a policy after which no pod could be created is refused", func(context.Context) error {
		out, err := w.do(policy(ns, "db", `envFrom: [{secretRef: {name: db-cred}}]`), "apply", "--dry-run=server", "-f", "-")
		if want := "pods of namespace " + ns + " with these items would be refused: "; err == nil || !strings.Contains(out, want) || !strings.Contains(out, `secret.secretName="db-cred"`) {
			return fmt.Errorf("%w: want %q in\n%s", err, want, out)
		}
		return nil
	})
	w.takes(t, "Others are not.", policy(ns, "plain", `env: [{name: A, value: b}]`), nil, "apply", "-f", "-")
}

// names lists variables.
func names(items *refractv1beta1.InjectedItems) []string {
	if items == nil {
		return nil
	}
	var out []string
	for _, e := range items.Env {
		out = append(out, e.Name+"="+string(e.Value))
	}
	for _, e := range items.EnvFrom {
		out = append(out, e.Prefix+":"+e.SecretRef.Name)
	}
	return out
}

// policiesDown is what happens when nobody answers.
func (w *authors) policiesDown(t *testing.T) {
	ns := w.place(t)
	w.refuses(t, "Policies are not written unchecked.", policy(ns, "new", `env: [{name: A, value: "1"}]`), []string{"failed calling webhook"}, "apply", "-f", "-")
	w.takes(t, "Their metadata is.", "", nil, "label", "sip", "db", "-n", "implicit", "a=b")
	w.takes(t, "So is their status.", "", nil, "patch", "sip", "db", "-n", "implicit", "--subresource=status", "--type=merge", "-p", `{"status":{"matched":1}}`)
	w.takes(t, "What is to go goes.", "", nil, "delete", "sip", "db", "-n", "implicit")
	w.refuses(t, "Services are judged by the API server itself.", service(ns, "db", `{refract.dev/env-from: secret/a}`), []string{"secret/a would be given"}, "create", "-f", "-", "--as=bob")
}
