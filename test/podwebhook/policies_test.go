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

// trusted is a user who may write references to objects without the right to read them.
const trusted = "system:serviceaccount:gitops:applier"

// ofAuthors is the namespace of a test. Bob and trusted may write policies and Services in it, and may read no Secret.
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

// authors is a cluster with users who write policies and Services.
type authors struct{ *world }

// TestPolicies tests writes of policies and Services by users with and without the necessary rights.
func TestPolicies(t *testing.T) {
	t.Parallel()
	w := &authors{begin(t)}
	if err := hub.InstallServiceAdmission(t.Context(), w.cfg, nil, trusted); err != nil {
		t.Fatal(err)
	}
	stop := w.serve(t)
	w.takes(t, "The namespace for trials.", strings.ReplaceAll(ofAuthors, "NAMESPACE", "early"), nil, "apply", "-f", "-")
	harness.Eventually(t, "the API server calls the webhook for policies", func(context.Context) error {
		out, err := w.do(policy("early", "number", `env: [{name: A, value: 1}]`), "create", "--dry-run=server", "-o", "yaml", "-f", "-")
		if err != nil || !strings.Contains(out, `value: "1"`) {
			return fmt.Errorf("want a number converted to text, got %w: %s", err, out)
		}
		if out, err = w.do(policy("early", "broken", `env: [{name: "A=B"}]`), "create", "--dry-run=server", "-f", "-"); err == nil {
			return fmt.Errorf("a broken policy is accepted: %s", out)
		}
		return nil
	})
	harness.Eventually(t, "the API server enforces the admission policy for Services", func(context.Context) error {
		if out, err := w.do(service("early", "db", `{refract.dev/env-from: secret/a}`), "create", "--dry-run=server", "--as=bob", "-f", "-"); err == nil {
			return fmt.Errorf("bob's Service is accepted: %s", out)
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

// place creates the namespace of a test.
func (w *authors) place(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	w.takes(t, "The namespace of the test.", strings.ReplaceAll(ofAuthors, "NAMESPACE", name), nil, "apply", "-f", "-")
	w.takes(t, "Without a ServiceAccount no pod can be created, not even in a dry run.", "", nil, "wait", "--for=create", "serviceaccount/default", "-n", name)
	return name
}

// policy returns a policy in a namespace, with these fields in addition to the selector.
func policy(namespace, name, spec string) string {
	return fmt.Sprintf("{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {namespace: %s, name: %s}, "+
		"spec: {selector: {matchLabels: {role: frontend}}, %s}}", namespace, name, spec)
}

// service returns a Service in a namespace, with annotations.
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

// read returns a stored policy.
func (w *authors) read(t *testing.T, namespace, name string) *refractv1beta1.ServiceInjectionPolicy {
	t.Helper()
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// spoiler is an admission policy that rejects pods with a certain volume, as an older API server would.
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

// numbers: a number in a policy is stored as a string, the type of variables in containers.
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
		w.takes(t, "The proposal's example is accepted from every kind of write.", strings.ReplaceAll(proposal, "NAMESPACE", ns), nil, append(how, "-f", "-")...)
		out, err := w.do("", "get", "sip", "allow-database", "-n", ns, "-o", "jsonpath={.spec.env}")
		if want := `[{"name":"DB_PORT","value":"6379"}]`; err != nil || out != want {
			t.Errorf("kubectl %s: the stored value is %s, %v, want %s", how, out, err, want)
		}
	}
	for _, n := range []string{"9007199254740993", "-9007199254740993", "12345678901234567890", "123456789012345678901234567890"} {
		const hint = "put quotes around the number: it is beyond"
		w.refuses(t, "A client may have rounded the number.",
			policy(ns, "long", `env: [{name: A, value: `+n+`}]`), []string{hint, "spec.env[0].value"}, "apply", "-f", "-")
		w.takes(t, "A text keeps all digits.", policy(ns, "long", `env: [{name: A, value: "`+n+`"}]`), nil, "apply", "-f", "-")
	}
	w.takes(t, "The largest exact number is accepted.", policy(ns, "exact", `env: [{name: A, value: 9007199254740991}]`), nil, "apply", "-f", "-")
	w.refuses(t, "Only whole numbers are accepted.", policy(ns, "float", `env: [{name: A, value: 1.5}]`), []string{"spec.env[0].value"}, "apply", "-f", "-")
}

func (w *authors) refusals(t *testing.T) {
	ns := w.place(t)
	w.refuses(t, "Each mistake is reported at its field, like the mistakes that API servers find.",
		policy(ns, "wrong", `env: [{name: "A=B", value: x}], volumes: [{name: Big, emptyDir: {}}]`),
		[]string{`The ServiceInjectionPolicy "wrong" is invalid`, "spec.env[0].name", "spec.volumes[0].name"}, "apply", "-f", "-")
	w.takes(t, "Another admission policy changes pods.", spoiler, nil, "apply", "-f", "-")
	harness.Eventually(t, "the policy is rejected with the field that makes pods invalid", func(context.Context) error {
		out, err := w.do(policy(ns, "spoilt", `env: [{name: A, value: b}], volumes: [{name: v, emptyDir: {}}, {name: spoilt, emptyDir: {}}], `+
			`volumeMounts: [{name: v, mountPath: /a}, {name: spoilt, mountPath: /b}]`), "apply", "--dry-run=server", "-f", "-")
		const want = `The ServiceInjectionPolicy "spoilt" is invalid: spec.volumeMounts[1].mountPath: Invalid value: "/a": must be unique`
		if err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("want %q in\n%s", want, out)
		}
		return nil
	})
	w.takes(t, "Other tests must not be affected.", "", nil, "delete", "mutatingadmissionpolicybinding/spoiler", "mutatingadmissionpolicy/spoiler")
	w.takes(t, "A mount may name a volume of the pods.",
		policy(ns, "own", `volumeMounts: [{name: data, mountPath: /a, subPath: x}, {name: data, mountPath: /b}]`), []string{"Warning: spec.volumeMounts[0].name"}, "apply", "-f", "-")
	out, err := w.do("", "get", "pods", "-n", ns, "-o", "name")
	if err != nil || strings.Contains(out, "pod/") {
		t.Errorf("Dry runs must leave no pods: %v\n%s", err, out)
	}
}

func (w *authors) warnings(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "The first policy is accepted.", policy(ns, "z-first", `service: db, env: [{name: DB_PORT, value: 6379}]`), nil, "apply", "-f", "-")
	harness.Eventually(t, "the contradiction between the policies causes a warning", func(context.Context) error {
		out, err := w.do(policy(ns, "a-second", `env: [{name: DB_PORT, value: 7000}]`), "apply", "--dry-run=server", "-f", "-")
		const want = "Warning: a pod with the label role=frontend is selected by both z-first and a-second, which differ in variable DB_PORT: " +
			"the former is applied and the latter is left out for it"
		if err != nil || !strings.Contains(out, want) {
			return fmt.Errorf("%w: want %q in\n%s", err, want, out)
		}
		return nil
	})
	w.takes(t, "Pods would wait for a missing Secret.", policy(ns, "missing", `envFrom: [{secretRef: {name: db-cred}}]`),
		[]string{"Warning: spec.envFrom[0].secretRef.name: there is no Secret db-cred yet"}, "apply", "-f", "-")
	w.takes(t, "The Secret is created.", "", nil, "create", "secret", "generic", "db-cred", "-n", ns, "--from-literal=user=u")
	w.takes(t, "The Secret lacks the key.", policy(ns, "key", `env: [{name: A, valueFrom: {secretKeyRef: {name: db-cred, key: password}}}]`),
		[]string{"Warning: spec.env[0].valueFrom.secretKeyRef.name: Secret db-cred has no password"}, "apply", "-f", "-")
	w.takes(t, "A selector for all pods may be a mistake.",
		strings.ReplaceAll(policy(ns, "all", `env: [{name: B, value: b}]`), "{matchLabels: {role: frontend}}", "{}"),
		[]string{"Warning: spec.selector: selects every pod of the namespace"}, "apply", "-f", "-")
	w.takes(t, "The namespace becomes strict.", "", nil, "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted")
	const host = `volumes: [{name: host, hostPath: {path: /etc}}], volumeMounts: [{name: host, mountPath: /host}]`
	why := "pods of namespace " + ns + ` with these items would be refused: violates PodSecurity "restricted:latest": `
	harness.Eventually(t, "a policy is rejected if its pods would be rejected", func(context.Context) error {
		out, err := w.do(policy(ns, "host", host), "apply", "--dry-run=server", "-f", "-")
		if want := `The ServiceInjectionPolicy "host" is invalid: spec: ` + why; err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("%w: want %q in\n%s", err, want, out)
		}
		return nil
	})
	w.takes(t, "A policy in mode Audit injects nothing, so it gets only a warning.",
		policy(ns, "host", host+", mode: Audit"), []string{"Warning: spec: with the mode Enforce, " + why}, "apply", "-f", "-")
	w.takes(t, "Nothing is injected in kube-system.", policy("kube-system", "plain", host),
		[]string{"Warning: metadata.namespace: nothing is injected into pods of namespace kube-system"}, "apply", "--dry-run=server", "-f", "-")
	out, err := w.do(policy(ns, "plain", `env: [{name: C, value: c}]`), "apply", "-f", "-")
	if err != nil || strings.Contains(out, "Warning") {
		t.Errorf("A policy without a violation must cause no warning: %v\n%s", err, out)
	}
}

func (w *authors) secrets(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "A Secret of another user.", "", nil, "create", "secret", "generic", "db-cred", "-n", ns, "--from-literal=password=p")
	handsOut := policy(ns, "db", `env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db-cred, key: password}}}]`)
	w.refuses(t, "Bob could read the Secret in a pod.", handsOut,
		[]string{"Forbidden", "Secret db-cred", `user "bob" may not get in namespace ` + ns, "--trusted-authors=bob"}, "create", "-f", "-", "--as=bob")
	w.takes(t, "A trusted user needs no right to read.", handsOut, nil, "create", "-f", "-", "--as="+trusted)
	w.takes(t, "Bob may make changes that give the Secret to no other container or field.", "", nil, "patch", "sip", "db", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"metadata":{"labels":{"a":"b"}},"spec":{"rollout":{"strategy":"None"},"volumes":[{"name":"v","emptyDir":{}}]}}`)
	for reason, patch := range map[string]string{
		"GREETING would be the password.":          `{"spec":{"env":[{"name":"GREETING","valueFrom":{"secretKeyRef":{"name":"db-cred","key":"password"}}}]}}`,
		"GREETING would contain it.":               `{"spec":{"env":[{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"db-cred","key":"password"}}},{"name":"GREETING","value":"$(PASSWORD)"}]}}`,
		"Other containers would get the password.": `{"spec":{"containers":{"include":["web"]}}}`,
		"Files would contain the password.":        `{"spec":{"volumes":[{"name":"v","secret":{"secretName":"db-cred"}}]}}`,
	} {
		w.refuses(t, reason, "", []string{"Secret db-cred"}, "patch", "sip", "db", "-n", ns, "--as=bob", "--type=merge", "-p", patch)
	}
	for _, args := range [][]string{
		{"create", "role", "reader", "-n", ns, "--verb=get", "--resource=secrets", "--resource-name=db-cred"},
		{"create", "rolebinding", "reader", "-n", ns, "--role=reader", "--user=bob"},
	} {
		w.takes(t, "Bob gets the right.", "", nil, args...)
	}
	harness.Eventually(t, "bob's right is in effect", func(context.Context) error {
		out, err := w.do("", "patch", "sip", "db", "-n", ns, "--as=bob", "--type=merge", "-p", `{"spec":{"containers":{"include":["web"]}}}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// finalizers: a policy in deletion is in effect until its last finalizer is removed.
func (w *authors) finalizers(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "A policy for a finalizer.", policy(ns, "held", `env: [{name: A, value: b}]`), nil, "create", "-f", "-", "--as=bob")
	w.takes(t, "Bob may add a finalizer.",
		"", nil, "patch", "sip", "held", "-n", ns, "--as=bob", "--type=merge", "-p", `{"metadata":{"finalizers":["bob.example/hold"]}}`)
	w.takes(t, "The policy is marked for deletion.", "", nil, "delete", "sip", "held", "-n", ns, "--as=bob", "--wait=false")
	w.refuses(t, "A policy in deletion cannot get a forbidden reference.",
		"", []string{"Secret db-cred"}, "patch", "sip", "held", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"spec":{"envFrom":[{"secretRef":{"name":"db-cred"}}]}}`)
	w.takes(t, "Bob may remove the finalizer.", "", nil, "patch", "sip", "held", "-n", ns, "--as=bob", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// services: a Service's annotations may name only Secrets and ConfigMaps that their author may read. The webhook checks
// this when the annotations are written.
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
		"None": {reason: "Services without these annotations are accepted.", annotations: `{a: secret/db-cred}`},
		"Plain": {
			reason:      "Annotations without references are accepted.",
			annotations: `{refract.dev/env: '{"A":"b"}', refract.dev/derive: "host,port", refract.dev/prefix: DB_}`,
		},
		"EnvFrom": {
			"Bob could read the Secret in a pod.",
			`{refract.dev/env-from: secret/db-cred}`,
			[]string{"secret/db-cred would be given to the consumers of this Service", "bob may not get it in namespace " + ns},
		},
		"Mount": {"Bob could read the Secret in a file.", `{refract.dev/mount: "secret/db-tls:/etc/tls:ro"}`, []string{"secret/db-tls would be given"}},
		"Second": {
			"Each reference is checked.",
			`{refract.dev/env-from: "configmap/kube-root-ca.crt,configmap/settings"}`, []string{"configmap/settings would be given"},
		},
		"Both": {
			"The references in both annotations are checked.",
			`{refract.dev/env-from: "configmap/kube-root-ca.crt", refract.dev/mount: "configmap/settings:/s"}`, []string{"configmap/settings would be given"},
		},
		"Spaces": {
			"Space between references does not prevent the check.",
			"{refract.dev/env-from: \" ,\\t secret/db-cred\\n,\"}", []string{"secret/db-cred would be given"},
		},
		"OtherSpace": {
			"No kind of Unicode space prevents the check.",
			`{refract.dev/env-from: "\u3000secret/db-cred\u00a0"}`, []string{"secret/db-cred would be given"},
		},
		"Unreadable": {reason: "An unreadable reference has no effect, so it is accepted.", annotations: `{refract.dev/env-from: "Secret/db-cred,secrets/db-cred"}`},
		"Many": {
			"The number of new references is bounded.",
			`{refract.dev/env-from: "` + strings.Join(many, ",") + `"}`, []string{"17 Secrets and ConfigMaps are newly named"},
		},
		"Sixteen": {
			"The maximum number of references is checked.",
			`{refract.dev/env-from: "` + strings.Join(many[:16], ",") + `"}`, []string{"secret/s0 would be given"},
		},
	} {
		text := service(ns, "db-"+strings.ToLower(name), tc.annotations)
		if tc.denied == nil {
			w.takes(t, tc.reason, text, nil, "create", "-f", "-", "--as=bob")
			continue
		}
		w.refuses(t, tc.reason, text, tc.denied, "create", "-f", "-", "--as=bob")
		w.takes(t, "A trusted user needs no right to read.", text, nil, "create", "-f", "-", "--as="+trusted)
	}
	w.takes(t, "Bob may write a Service if the annotations stay unchanged.", "", nil, "annotate", "service", "db-envfrom", "-n", ns, "a=b", "--as=bob")
	w.takes(t, "Bob may remove a reference.",
		"", nil, "annotate", "service", "db-second", "-n", ns, "refract.dev/env-from=configmap/settings", "--overwrite", "--as=bob")
	w.refuses(t, "Bob may not mount a Secret of env-from, because a file server may serve the mounted files.", "", []string{"secret/db-cred would be given"},
		"annotate", "service", "db-envfrom", "-n", ns, "refract.dev/mount=secret/db-cred:/usr/share/nginx/html", "--as=bob")
	for _, entry := range []string{"secret/db-tls:/usr/share/nginx/html:ro", "secret/db-tls:/etc/tls"} {
		w.refuses(t, "Bob may not change the path or the mode of a mount.", "", []string{"secret/db-tls would be given"},
			"annotate", "service", "db-mount", "-n", ns, "refract.dev/mount="+entry, "--overwrite", "--as=bob")
	}
	w.takes(t, "A change of order and space is no new reference.", "", nil,
		"annotate", "service", "db-mount", "-n", ns, "refract.dev/mount=configmap/kube-root-ca.crt:/ca, secret/db-tls:/etc/tls:ro ", "--overwrite", "--as=bob")
	w.takes(t, "The names of derived variables are no references.", "", nil,
		"annotate", "service", "db-mount", "-n", ns, "refract.dev/prefix=DB_", "refract.dev/derive=port", "--as=bob")
	w.refuses(t, "Bob may not add a reference.", "", []string{"secret/db-tls would be given"},
		"annotate", "service", "db-envfrom", "-n", ns, "refract.dev/env-from=secret/db-cred,secret/db-tls", "--overwrite", "--as=bob")
	w.refuses(t, "Bob may not add a reference with an update of the status.", "", []string{"secret/db-tls would be given"},
		"patch", "service", "db-none", "-n", ns, "--subresource=status", "--type=merge", "-p", `{"metadata":{"annotations":{"refract.dev/env-from":"secret/db-tls"}}}`, "--as=bob")
	for _, args := range [][]string{
		{"create", "role", "reader", "-n", ns, "--verb=get", "--resource=secrets,configmaps", "--resource-name=db-tls", "--resource-name=settings"},
		{"create", "rolebinding", "reader", "-n", ns, "--role=reader", "--user=bob"},
	} {
		w.takes(t, "Bob gets the right to read some of the objects.", "", nil, args...)
	}
	harness.Eventually(t, "bob's right is in effect", func(context.Context) error {
		out, err := w.do("", "annotate", "service", "db-none", "-n", ns, "refract.dev/env-from=secret/db-tls,configmap/settings", "--overwrite", "--as=bob")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	w.takes(t, "Administrators may read everything, so the number of references is not bounded.",
		service(ns, "db-much", `{refract.dev/env-from: "`+strings.Join(many, ",")+`"}`), nil, "create", "-f", "-")
}

// implicit: Refract updates the status of a policy when its Service changes, and keeps the fields of other writers.
func (w *authors) implicit(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "A missing Service, perhaps a typo, causes a warning.", policy(ns, "db", `service: db, implicit: true, env: [{name: OWN, value: 1}]`),
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
		if took := time.Since(begun); took > 20*time.Second { // A check takes a second on an idle machine.
			t.Errorf("Waiting until %s: it took %s", reason, took)
		}
	}
	becomes("the Service is reported as missing", state{Reason: "NotFound", Together: []string{"OWN=1"}})
	w.takes(t, "Another writer owns the rest of the status.", "", nil, "patch", "sip", "db", "-n", ns, "--subresource=status", "--type=merge",
		"-p", `{"status":{"conditions":[{"type":"RolledOut","status":"True","reason":"Complete","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"},`+
			`{"type":"ServiceFound","status":"True","reason":"Forged","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}],`+
			`"fromService":{"envFrom":[{"secretRef":{"name":"forged"}}]}}}`)
	becomes("the forged fields are corrected", state{Reason: "NotFound", Together: []string{"OWN=1"}})
	w.takes(t, "The Service is created.", service(ns, "db", `{refract.dev/env: '{"OWN":"2","OTHER":3}', refract.dev/derive: port}`), nil, "apply", "-f", "-")
	becomes("the Service is found", state{"Found", []string{"PORT=6379", "OWN=2", "OTHER=3"}, []string{"OWN=1", "PORT=6379", "OTHER=3"}})
	w.takes(t, "The Service changes its port.",
		"", nil, "patch", "service", "db", "-n", ns, "--type=json", "-p", `[{"op":"replace","path":"/spec/ports/0/port","value":6380}]`)
	becomes("the port changes", state{"Found", []string{"PORT=6380", "OWN=2", "OTHER=3"}, []string{"OWN=1", "PORT=6380", "OTHER=3"}})
	w.takes(t, "The Service gets an invalid annotation.", "", nil, "annotate", "service", "db", "-n", ns, "refract.dev/derive=prot", "--overwrite")
	becomes("the mistake is reported", state{"InvalidAnnotations", []string{"PORT=6380", "OWN=2", "OTHER=3"}, []string{"OWN=1", "PORT=6380", "OTHER=3"}})
	harness.Eventually(t, "an event reports the mistake", func(context.Context) error {
		out, err := w.do("", "get", "events", "-n", ns, "-o", `jsonpath={range .items[*]}{.reason}{" "}{end}`)
		if err != nil || !strings.Contains(out, "ServiceInvalidAnnotations") || !strings.Contains(out, "ServiceFound") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	w.takes(t, "The Service is deleted.", "", nil, "delete", "service", "db", "-n", ns)
	becomes("the Service is reported as missing again", state{Reason: "NotFound", Together: []string{"OWN=1"}})
	w.takes(t, "The policy no longer uses the Service.", "", nil, "patch", "sip", "db", "-n", ns, "--type=merge", "-p", `{"spec":{"implicit":false}}`)
	becomes("the items of the Service are removed", state{})
	if p := w.read(t, ns, "db"); meta.FindStatusCondition(p.Status.Conditions, refractv1beta1.ConditionRolledOut) == nil {
		t.Errorf("The rest of the status must stay: got %+v", p.Status)
	}
}

// consumers: the author of a policy chooses the pods that get the references of a Service, and so must have the right
// to read the referenced objects.
func (w *authors) consumers(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "A Service names a Secret.", service(ns, "db", `{refract.dev/env-from: secret/db-cred, refract.dev/derive: port}`), nil, "create", "-f", "-")
	w.refuses(t, "Bob could read the Secret in his pod.", policy(ns, "mine", `service: db, implicit: true`),
		[]string{"Forbidden", "Secret db-cred (named by Service db)", `user "bob" may not get in namespace ` + ns}, "create", "-f", "-", "--as=bob")
	w.takes(t, "A policy without implicit takes no reference from the Service.",
		policy(ns, "mine", `service: db, env: [{name: A, value: b}]`), nil, "create", "-f", "-", "--as=bob")
	w.refuses(t, "Bob may not set implicit later either.",
		"", []string{"Secret db-cred"}, "patch", "sip", "mine", "-n", ns, "--as=bob", "--type=merge", "-p", `{"spec":{"implicit":true}}`)
	w.takes(t, "An administrator may set implicit.", "", nil, "patch", "sip", "mine", "-n", ns, "--type=merge", "-p", `{"spec":{"implicit":true}}`)
	w.refuses(t, "Bob may not select other containers for the references.",
		"", []string{"Secret db-cred"}, "patch", "sip", "mine", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"spec":{"containers":{"include":["bobs"]}}}`)
	w.takes(t, "Bob may add an item without a reference for the same pods.", "", nil, "patch", "sip", "mine", "-n", ns, "--as=bob", "--type=merge",
		"-p", `{"spec":{"env":[{"name":"A","value":"c"}]}}`)
	w.takes(t, "A trusted user needs no right to read.", policy(ns, "theirs", `service: db, implicit: true`), nil, "create", "-f", "-", "--as="+trusted)
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

// forged: only Refract may write the status fields with the injected items of a Service.
func (w *authors) forged(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "Carol gets the right to write the status of policies.", strings.ReplaceAll(statusAuthor, "NAMESPACE", ns), nil, "apply", "-f", "-")
	w.takes(t, "A Service with an invalid annotation.", service(ns, "db", `{refract.dev/env: not json}`), nil, "create", "-f", "-")
	w.takes(t, "A policy.", policy(ns, "db", `service: db, implicit: true, env: [{name: A, value: b}]`), nil, "create", "-f", "-")
	patch := func(status string) []string {
		return []string{"patch", "sip", "db", "-n", ns, "--subresource=status", "--type=merge", "--as=carol", "-p", `{"status":` + status + `}`}
	}
	harness.Eventually(t, "carol's right is in effect", func(context.Context) error {
		out, err := w.do("", patch(`{"matched":7}`)...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for _, part := range []string{"fromService", "effective"} {
		w.refuses(t, "Carol's right to read the reference is not checked here, so she may not write it.",
			"", []string{"status.fromService and status.effective", "carol may not write them"},
			patch(`{"`+part+`":{"envFrom":[{"secretRef":{"name":"db-cred"}}]}}`)...)
	}
	w.takes(t, "Other fields of the status may be written.", "", nil, patch(`{"matched":8,"hash":"a"}`)...)
	w.takes(t, "Refract's own account may write an unreadable status.", "", nil, "patch", "sip", "db", "-n", ns, "--subresource=status", "--type=merge",
		"-p", `{"status":{"fromService":{"env":"none"}}}`)
	w.takes(t, "The Service gets a valid annotation.", "", nil, "annotate", "service", "db", "-n", ns, `refract.dev/env={"C":"d"}`, "--overwrite")
	harness.Eventually(t, "a policy with an unreadable status is corrected, and blocks no other", func(context.Context) error {
		out, err := w.do("", "get", "sip", "db", "-n", ns, "-o", "jsonpath={.status.fromService}")
		if want := `{"env":[{"name":"C","value":"d"}]}`; err != nil || out != want {
			return fmt.Errorf("%w: got %s, want %s", err, out, want)
		}
		return nil
	})
}

// mountable: an annotation may limit a ServiceAccount to certain Secrets.
func (w *authors) mountable(t *testing.T) {
	ns := w.place(t)
	w.takes(t, "The ServiceAccount may mount no Secret.",
		"", nil, "annotate", "serviceaccount", "default", "-n", ns, "kubernetes.io/enforce-mountable-secrets=true")
	harness.Eventually(t, "a policy is rejected if no pod could be created with it", func(context.Context) error {
		out, err := w.do(policy(ns, "db", `envFrom: [{secretRef: {name: db-cred}}]`), "apply", "--dry-run=server", "-f", "-")
		if want := "pods of namespace " + ns + " with these items would be refused: "; err == nil || !strings.Contains(out, want) || !strings.Contains(out, `secret.secretName="db-cred"`) {
			return fmt.Errorf("%w: want %q in\n%s", err, want, out)
		}
		return nil
	})
	w.takes(t, "A policy without Secrets is accepted.", policy(ns, "plain", `env: [{name: A, value: b}]`), nil, "apply", "-f", "-")
}

// names returns the variables and sources as text.
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

// policiesDown tests requests while no webhook answers.
func (w *authors) policiesDown(t *testing.T) {
	ns := w.place(t)
	w.refuses(t, "Policies cannot be written without the check.",
		policy(ns, "new", `env: [{name: A, value: "1"}]`), []string{"failed calling webhook"}, "apply", "-f", "-")
	w.takes(t, "The metadata of policies can be written.", "", nil, "label", "sip", "db", "-n", "implicit", "a=b")
	w.takes(t, "The status of policies can be written.",
		"", nil, "patch", "sip", "db", "-n", "implicit", "--subresource=status", "--type=merge", "-p", `{"status":{"matched":1}}`)
	w.takes(t, "Policies can be deleted.", "", nil, "delete", "sip", "db", "-n", "implicit")
	w.refuses(t, "The API server itself checks Services, by an admission policy.",
		service(ns, "db", `{refract.dev/env-from: secret/a}`), []string{"secret/a would be given"}, "create", "-f", "-", "--as=bob")
}
