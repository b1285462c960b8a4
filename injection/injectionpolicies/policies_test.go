package injectionpolicies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/webhook/bounded"
)

// policyOf returns a policy with these fields in its spec, in addition to service and selector.
func policyOf(t *testing.T, spec string) *refractv1beta1.ServiceInjectionPolicy {
	t.Helper()
	p := &refractv1beta1.ServiceInjectionPolicy{}
	text := "{metadata: {namespace: shop, name: allow-database}, spec: {service: db, selector: {matchLabels: {role: frontend}}, " + spec + "}}"
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func compiled(t *testing.T, p *refractv1beta1.ServiceInjectionPolicy) *inject.Policy {
	t.Helper()
	out, errs := inject.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return out
}

// request returns the request for a write of a policy; was is nil for a new one.
func request(t *testing.T, was, now *refractv1beta1.ServiceInjectionPolicy, user string) *admissionv1.AdmissionRequest {
	t.Helper()
	req := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "shop", Name: "allow-database", UserInfo: authenticationv1.UserInfo{Username: user},
		Object: runtime.RawExtension{Raw: encoded(t, now)},
	}
	if was != nil {
		req.Operation, req.OldObject.Raw = admissionv1.Update, encoded(t, was)
	}
	return req
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// authorizer allows some users to read some objects, and records its requests.
type authorizer struct {
	may map[string]bool // RESOURCE/NAME.
	err error

	mu    sync.Mutex
	asked []string
}

func (a *authorizer) allowed(_ context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := what.Resource + "/" + what.Name
	a.asked = append(a.asked, fmt.Sprintf("%s %s %s/%s", user.Username, what.Verb, what.Namespace, name))
	return a.may[name], a.err
}

func (a *authorizer) told() []string {
	slices.Sort(a.asked)
	return a.asked
}

// cluster returns a client of an API server with these objects.
func cluster(funcs interceptor.Funcs, objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

func secret(keys ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Data: map[string][]byte{}}
	for _, k := range keys {
		s.Data[k] = nil
	}
	return s
}

// annotated returns the Service with annotations.
func annotated(pairs ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Annotations: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		s.Annotations[pairs[i]] = pairs[i+1]
	}
	return s
}

func configMap(name string, keys ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, BinaryData: map[string][]byte{}}
	for _, k := range keys {
		c.BinaryData[k] = nil
	}
	return c
}

const (
	fromSecret = `env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]`
	plain      = `env: [{name: DB_PORT, value: "6379"}]`
)

func TestValidate(t *testing.T) {
	deleted := func(p *refractv1beta1.ServiceInjectionPolicy) {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	}
	cases := map[string]struct {
		reason   string
		was, now string // Specs; was is empty for a new policy.
		change   func(*refractv1beta1.ServiceInjectionPolicy)
		user     string // Empty means bob.
		may      []string
		err      error
		objects  []client.Object
		others   map[string]string // Specs by name.
		status   string            // The earlier status.fromService.

		code     int32
		message  string   // Substring of the rejection.
		fields   []string // Fields of the rejection.
		asked    []string
		warnings []string
	}{
		"Plain": {
			reason: "The policy hands out no Secret or ConfigMap.",
			now:    plain,
		},
		"Invalid": {
			reason: "Each error has its field.",
			now:    `env: [{name: "A=B", value: x}], volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a/}]`,
			code:   422, message: `ServiceInjectionPolicy.refract.dev "allow-database" is invalid: [`,
			fields: []string{"spec.env[0].name", "spec.volumeMounts[1].mountPath"},
		},
		"InvalidIsNotAskedAbout": {
			reason: "For an invalid policy, the permissions of the author are not checked.",
			now:    fromSecret + `, volumes: [{name: "_", emptyDir: {}}]`,
			code:   422, fields: []string{"spec.volumes[0].name"},
		},
		"SecretAllowed": {
			reason:  "The author may read the Secret.",
			now:     fromSecret,
			may:     []string{"secrets/db"},
			objects: []client.Object{secret("password")},
			asked:   []string{"bob get shop/secrets/db"},
		},
		"SecretDenied": {
			reason: "The author could read the Secret in a pod.",
			now:    fromSecret,
			code:   403, message: `gives pods Secret db, which user "bob" may not get in namespace shop; ask for a role with the verb get on it there, have a user ` +
				`with such a role write the policy, or, for a user that writes reviewed policies, run refract with --trusted-authors=bob`,
			fields: []string{"spec.env[0].valueFrom.secretKeyRef.name"},
			asked:  []string{"bob get shop/secrets/db"},
		},
		"AllPlaces": {
			reason: "All fields that name a Secret or ConfigMap are checked. The content of a claim comes from its pods.",
			now: `env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: b, key: k}}}],
  envFrom: [{secretRef: {name: c}}, {configMapRef: {name: d}}],
  volumes: [{name: e, secret: {secretName: e}}, {name: f, configMap: {name: f}}, {name: i, persistentVolumeClaim: {claimName: i}},
    {name: g, projected: {sources: [{secret: {name: g}}, {configMap: {name: h}}, {configMap: {name: kube-root-ca.crt}}]}},
    {name: j, csi: {driver: d.example, nodePublishSecretRef: {name: j}}}]`,
			may:  []string{"secrets/a", "secrets/c", "secrets/e", "configmaps/b", "configmaps/d", "configmaps/h", "secrets/j"},
			code: 403, message: "gives pods ConfigMap f, Secret g, which",
			fields: []string{"spec.volumes[1].configMap.name", "spec.volumes[3].projected.sources[0].secret.name"},
			asked: []string{
				"bob get shop/configmaps/b", "bob get shop/configmaps/d", "bob get shop/configmaps/f", "bob get shop/configmaps/h",
				"bob get shop/secrets/a", "bob get shop/secrets/c", "bob get shop/secrets/e", "bob get shop/secrets/g", "bob get shop/secrets/j",
			},
		},
		"Optional": {
			reason: "An optional Secret is checked like a required one, but there is no warning if it is missing.",
			now:    `envFrom: [{secretRef: {name: db, optional: true}}]`,
			may:    []string{"secrets/db"},
			asked:  []string{"bob get shop/secrets/db"},
		},
		"Trusted": {
			reason:  "A trusted user writes reviewed policies, so its permissions are not checked.",
			now:     fromSecret,
			user:    "system:serviceaccount:flux-system:kustomize-controller",
			objects: []client.Object{secret("password")},
		},
		"TrustedByPart": {
			reason: "Only the whole name of a trusted user counts.",
			now:    fromSecret,
			user:   "kustomize-controller",
			code:   403, message: `user "kustomize-controller" may not get`, fields: []string{"spec.env[0].valueFrom.secretKeyRef.name"},
			asked: []string{"kustomize-controller get shop/secrets/db"},
		},
		"TrustedIsNotAlwaysRight": {
			reason: "A policy of a trusted user is validated, too.",
			now:    `env: [{name: "A=B"}]`,
			user:   "system:serviceaccount:flux-system:kustomize-controller",
			code:   422, fields: []string{"spec.env[0].name"},
		},
		"NobodyKnows": {
			reason: "If the permission is unknown, the policy is rejected.",
			now:    fromSecret,
			may:    []string{"secrets/db"},
			err:    errors.New("the authorizer is away"),
			code:   500,
			message: `the policy was not stored, because your permission to hand out its references is not known: try again ` +
				`(asking whether user "bob" may get Secret shop/db: the authorizer is away)`,
			asked: []string{"bob get shop/secrets/db"},
		},
		"TooMany": {
			reason: "The number of references in one write is limited, because each costs a request to the API server.",
			now:    "envFrom: [" + strings.Repeat("{secretRef: {name: sNNN}},", 100) + "]",
			change: func(p *refractv1beta1.ServiceInjectionPolicy) {
				for i := range p.Spec.EnvFrom {
					p.Spec.EnvFrom[i].SecretRef.Name = fmt.Sprintf("s%d", i)
				}
				for i := range 100 {
					p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
						Name: fmt.Sprintf("v%d", i), VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: fmt.Sprintf("v%d", i)}},
					})
				}
				projected := &corev1.ProjectedVolumeSource{Sources: make([]corev1.VolumeProjection, 2)}
				for i := range projected.Sources {
					projected.Sources[i].Secret = &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("p%d", i)}}
				}
				p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Projected: projected}
			},
			code: 422, fields: []string{"spec"}, message: "201 additional Secrets and ConfigMaps",
		},
		"LabelsOnly": {
			reason: "A write of labels or status does not change the injected items.",
			was:    fromSecret, now: fromSecret,
			change: func(p *refractv1beta1.ServiceInjectionPolicy) {
				p.Labels = map[string]string{"a": "b"}
				p.Status.Matched = 3
			},
		},
		"InvalidAsItWas": {
			reason: "A write of finalizers is allowed even if the stored policy is invalid.",
			was:    `env: [{name: "A=B"}]`, now: `env: [{name: "A=B"}]`,
			change: func(p *refractv1beta1.ServiceInjectionPolicy) { p.Finalizers = []string{"a.example/b"} },
		},
		"BeingDeleted": {
			reason: "A policy in deletion can be written, as long as its spec does not change.",
			was:    `env: [{name: "A=B"}]`, now: `env: [{name: "A=B"}]`,
			change: deleted,
		},
		"ChangedWhileBeingDeleted": {
			reason: "A policy in deletion has effect while a finalizer keeps it, so a changed spec is checked.",
			was:    plain, now: fromSecret,
			change: deleted,
			code:   403, fields: []string{"spec.env[0].valueFrom.secretKeyRef.name"},
			asked: []string{"bob get shop/secrets/db"},
		},
		"Unchanged": {
			reason: "References that already had the same use are not checked again.",
			was:    fromSecret, now: `env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}, {name: A, value: b}], rollout: {maxConcurrent: 3}, onConflict: Reject`,
		},
		"Added": {
			reason: "Only additional references are checked.",
			was:    fromSecret, now: `env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}], envFrom: [{configMapRef: {name: settings}}]`,
			may:   []string{"configmaps/settings"},
			asked: []string{"bob get shop/configmaps/settings"}, objects: []client.Object{configMap("settings")},
		},
		"Missing": {
			reason: "Pods would wait for a missing object. The warning reveals nothing, because the author may read the object.",
			now: `env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: user}}}, {name: B, valueFrom: {secretKeyRef: {name: db, key: password}}},
  {name: C, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}, {name: D, valueFrom: {secretKeyRef: {name: other, key: k, optional: true}}}],
  envFrom: [{secretRef: {name: all}}]`,
			may:     []string{"secrets/db", "secrets/other", "secrets/all", "configmaps/settings"},
			objects: []client.Object{secret("user"), configMap("settings", "colour")},
			asked:   []string{"bob get shop/configmaps/settings", "bob get shop/secrets/all", "bob get shop/secrets/db", "bob get shop/secrets/other"},
			warnings: []string{
				"spec.envFrom[0].secretRef.name: there is no Secret all yet; pods do not start without it",
				"spec.env[0].valueFrom.secretKeyRef.name: Secret db has no password; pods do not start without",
			},
		},
		"EveryPod": {
			reason:   "An empty selector may be intended or a mistake, so there is a warning.",
			now:      plain,
			change:   func(p *refractv1beta1.ServiceInjectionPolicy) { p.Spec.Selector = &metav1.LabelSelector{} },
			warnings: []string{"spec.selector: selects every pod of the namespace"},
		},
		"Contradiction": {
			reason: "Two authors should know about contradicting policies before pods are created.",
			now:    plain,
			others: map[string]string{
				"allow-database": `env: [{name: DB_PORT, value: "1"}]`, "same": plain, "queue": `env: [{name: DB_PORT, value: "7000"}]`,
			},
			warnings: []string{
				"a pod with the label role=frontend is selected by both allow-database and queue, which differ in variable DB_PORT: " +
					"the former is applied and the latter is left out for it",
			},
		},
		"Contradictions": {
			reason: "The number of warnings is limited.",
			now:    plain,
			others: map[string]string{
				"o1": `env: [{name: DB_PORT, value: "7000"}]`, "o2": `env: [{name: DB_PORT, value: "7000"}]`, "o3": `env: [{name: DB_PORT, value: "7000"}]`,
				"o4": `env: [{name: DB_PORT, value: "7000"}]`, "o5": `env: [{name: DB_PORT, value: "7000"}]`,
			},
			warnings: []string{
				"a pod with the label role=frontend is selected by both allow-database and o1, which differ in variable DB_PORT: the former is applied and the latter is left out for it",
				"a pod with the label role=frontend is selected by both allow-database and o2, which differ in variable DB_PORT: the former is applied and the latter is left out for it",
				"a pod with the label role=frontend is selected by both allow-database and o3, which differ in variable DB_PORT: the former is applied and the latter is left out for it",
				"2 more policies conflict with it",
			},
		},
		"ImplicitWithoutService": {
			reason:   "A warning shows a wrong name of the Service at once.",
			now:      `implicit: true`,
			warnings: []string{"spec.service: there is no Service db yet; until then, only the items of the policy itself are injected"},
		},
		"Implicit": {
			reason:  "The objects of the Service may be read. Its items can contradict those of other policies.",
			now:     `implicit: true`,
			may:     []string{"secrets/db"},
			asked:   []string{"bob get shop/secrets/db"},
			objects: []client.Object{annotated(refractv1beta1.EnvFromAnnotation, "secret/db", refractv1beta1.EnvAnnotation, `{"DB_PORT":"6379"}`)},
			others:  map[string]string{"queue": `env: [{name: DB_PORT, value: "7000"}]`},
			warnings: []string{
				"a pod with the label role=frontend is selected by both allow-database and queue, which differ in variable DB_PORT: " +
					"the former is applied and the latter is left out for it",
			},
		},
		"ImplicitDenied": {
			reason: "The author of the Service chose its consumers. The author of this policy chooses other ones, and needs the permission, too.",
			now:    `implicit: true`,
			objects: []client.Object{annotated(
				refractv1beta1.EnvFromAnnotation, "secret/db, configmap/kube-root-ca.crt, secret/", refractv1beta1.MountAnnotation, "configmap/settings:/s,secret/db:/db",
			)},
			may:  []string{"configmaps/settings"},
			code: 403, message: `gives pods Secret db (named by Service db), which user "bob" may not get in namespace shop`,
			fields: []string{"spec.service"},
			asked:  []string{"bob get shop/configmaps/settings", "bob get shop/secrets/db"},
		},
		"ImplicitTrusted": {
			reason:  "A trusted user writes reviewed policies, so its permissions are not checked.",
			now:     `implicit: true`,
			user:    "alice",
			objects: []client.Object{annotated(refractv1beta1.EnvFromAnnotation, "secret/db")},
		},
		"ImplicitSince": {
			reason: "With spec.implicit, the policy also hands out the Secrets of the Service.",
			was:    plain, now: plain + `, implicit: true`,
			objects: []client.Object{annotated(refractv1beta1.EnvFromAnnotation, "secret/db")},
			code:    403, fields: []string{"spec.service"}, asked: []string{"bob get shop/secrets/db"},
		},
		"ImplicitElsewhere": {
			reason: "The Secrets of the Service go to other containers than before.",
			was:    `implicit: true`, now: `implicit: true, containers: {include: [web]}`,
			objects: []client.Object{annotated(refractv1beta1.EnvFromAnnotation, "secret/db")},
			code:    403, fields: []string{"spec.service"}, asked: []string{"bob get shop/secrets/db"},
		},
		"ImplicitMounted": {
			reason: "The mounted volume may come from the Service.",
			was:    `implicit: true`, now: `implicit: true, volumeMounts: [{name: svc-secret-db, mountPath: /usr/share/nginx/html}]`,
			objects: []client.Object{annotated(refractv1beta1.MountAnnotation, "secret/db:/db")},
			code:    403, fields: []string{"spec.service"}, asked: []string{"bob get shop/secrets/db"},
		},
		"ImplicitAsBefore": {
			reason: "The use of the Service's Secrets is unchanged.",
			was:    `implicit: true`, now: `implicit: true, ` + plain,
			objects: []client.Object{annotated(refractv1beta1.EnvFromAnnotation, "secret/db")},
		},
		"ImplicitOnlyBefore": {
			reason: "While the annotations are invalid, the earlier items of the Service are in effect.",
			was:    `implicit: true`, now: `implicit: true, containers: {include: [web]}`,
			status:  `{envFrom: [{secretRef: {name: former}}]}`,
			objects: []client.Object{annotated(refractv1beta1.EnvFromAnnotation, "secret")},
			code:    403, fields: []string{"spec.service"}, asked: []string{"bob get shop/secrets/former"},
		},
		"ExemptNamespace": {
			reason:   "A policy in an exempt namespace has no effect.",
			now:      plain,
			change:   func(p *refractv1beta1.ServiceInjectionPolicy) { p.Namespace = "kube-system" },
			warnings: []string{"metadata.namespace: nothing is injected into pods of namespace kube-system, despite its policies"},
		},
		"ImplicitInvalid": {
			reason: "The author of the policy may not be responsible for the Service, so an invalid Service leads to a warning only.",
			now:    `implicit: true`,
			objects: []client.Object{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Annotations: map[string]string{
				refractv1beta1.DeriveAnnotation: "colour",
			}}}},
			warnings: []string{`spec.service: Service db: metadata.annotations[refract.dev/derive]: Unsupported value: "colour": ` +
				`supported values: "host", "port"; only its valid items are injected`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := policyOf(t, tc.now)
			var was *refractv1beta1.ServiceInjectionPolicy
			if tc.was != "" {
				was = policyOf(t, tc.was)
			}
			if tc.status != "" {
				was.Status.FromService = &refractv1beta1.InjectedItems{}
				if err := yaml.UnmarshalStrict([]byte(tc.status), was.Status.FromService); err != nil {
					t.Fatal(err)
				}
			}
			if tc.change != nil {
				tc.change(now)
			}
			a := &authorizer{may: map[string]bool{}, err: tc.err}
			for _, what := range tc.may {
				a.may[what] = true
			}
			var others []*inject.Policy
			for _, other := range sortedKeys(tc.others) {
				p := policyOf(t, tc.others[other])
				p.Name = other
				others = append(others, compiled(t, p))
			}
			user := tc.user
			if user == "" {
				user = "bob"
			}
			got := ask(t, Validate(Options{Reading: bounded.NewReader(100_000),
				Client: cluster(interceptor.Funcs{}, tc.objects...), Allowed: a.allowed, Log: logr.Discard(),
				Trusted: []string{"alice", "system:serviceaccount:flux-system:kustomize-controller"},
				Others:  func(string) []*inject.Policy { return others },
				Exempt:  refractv1beta1.ExemptNamespaces("kube-admiral-system"),
			}), request(t, was, now, user))

			code, message, fields := int32(0), "", []string(nil)
			if !got.Allowed {
				code, message = got.Result.Code, got.Result.Message
				if got.Result.Details != nil {
					for _, c := range got.Result.Details.Causes {
						fields = append(fields, c.Field)
					}
				}
			}
			if code != tc.code || !strings.Contains(message, tc.message) {
				t.Errorf("%s\nanswer: got %d %q, want %d and %q in it", tc.reason, code, message, tc.code, tc.message)
			}
			if diff := cmp.Diff(tc.fields, fields); diff != "" {
				t.Errorf("%s\nfields of what is refused: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.asked, a.told()); diff != "" {
				t.Errorf("%s\nwhat the authorizer was asked: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("%s\nwarnings: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestValidateOtherRequests(t *testing.T) {
	a := &authorizer{}
	h := Validate(Options{Reading: bounded.NewReader(100_000), Client: cluster(interceptor.Funcs{}), Allowed: a.allowed, Log: logr.Discard()})
	now := encoded(t, policyOf(t, fromSecret))
	cases := map[string]struct {
		reason string
		req    admissionv1.AdmissionRequest
		want   bool
	}{
		"Delete":      {"Deletions are not checked.", admissionv1.AdmissionRequest{Operation: admissionv1.Delete, OldObject: runtime.RawExtension{Raw: now}}, true},
		"Subresource": {"Writes of the status are not checked.", admissionv1.AdmissionRequest{Operation: admissionv1.Update, SubResource: "status", Object: runtime.RawExtension{Raw: now}}, true},
		"NoObject":    {"A create without an object is rejected.", admissionv1.AdmissionRequest{Operation: admissionv1.Create}, false},
		"Operation":   {"An unknown operation is rejected.", admissionv1.AdmissionRequest{Operation: "PUT", Object: runtime.RawExtension{Raw: now}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ask(t, h, &tc.req); got.Allowed != tc.want {
				t.Errorf("%s\nallowed: got %t, want %t", tc.reason, got.Allowed, tc.want)
			}
		})
	}
}

// TestMostReferences: one write may have mostReferences new references, and no more.
func TestMostReferences(t *testing.T) {
	for n, want := range map[int]string{
		mostReferences:     "",
		mostReferences + 1: "hands out 201 additional Secrets and ConfigMaps, want at most 200 in one write: split the policy",
	} {
		a := &authorizer{may: map[string]bool{}}
		var env []string
		for i := range n {
			name := fmt.Sprint("s", i)
			a.may["secrets/"+name] = true
			env = append(env, fmt.Sprintf("{name: V%d, valueFrom: {secretKeyRef: {name: %s, key: a}}}", i, name))
		}
		h := Validate(Options{Reading: bounded.NewReader(100_000), Client: cluster(interceptor.Funcs{}), Allowed: a.allowed, Log: logr.Discard()})
		got := ask(t, h, request(t, nil, policyOf(t, "env: ["+strings.Join(env, ", ")+"]"), "bob"))
		message := ""
		if !got.Allowed {
			message = got.Result.Message
		}
		if got.Allowed != (want == "") || !strings.Contains(message, want) {
			t.Errorf("%d references: want %q, got %q", n, want, message)
		}
		if asked := len(a.told()); want != "" && asked > 0 {
			t.Errorf("%d references: the authorizer is asked %d times", n, asked)
		}
	}
}

// TestValidateNumbers: a number that may have lost digits is rejected at its field.
func TestValidateNumbers(t *testing.T) {
	h := Validate(Options{Reading: bounded.NewReader(100_000), Client: cluster(interceptor.Funcs{}), Allowed: (&authorizer{}).allowed, Log: logr.Discard()})
	for name, tc := range map[string]struct {
		env    string
		fields []string
		code   int32
	}{
		"Exact":    {env: `{"name":"A","value":9007199254740991}`},
		"Quoted":   {env: `{"name":"A","value":"12345678901234567890"}`},
		"Beyond":   {env: `{"name":"A","value":1},{"name":"B","value":9007199254740993}`, fields: []string{"spec.env[1].value"}, code: 422},
		"Negative": {env: `{"name":"A","value":-9007199254740992}`, fields: []string{"spec.env[0].value"}, code: 422},
		"Rounded":  {env: `{"name":"A","value":12345678901234567000},{"name":"B","value":1.2345678901234567e+21}`, fields: []string{"spec.env[0].value", "spec.env[1].value"}, code: 422},
		"NoNumber": {env: `{"name":"A","value":true}`, code: 400},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, h, &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{
				Raw: []byte(`{"metadata":{"namespace":"shop","name":"big"},"spec":{"selector":{"matchLabels":{"a":"b"}},"env":[` + tc.env + `]}}`),
			}})
			var fields []string
			code := int32(0)
			if !got.Allowed {
				code = got.Result.Code
				if got.Result.Details != nil {
					for _, c := range got.Result.Details.Causes {
						fields = append(fields, c.Field)
					}
				}
			}
			if diff := cmp.Diff([]any{tc.code, tc.fields}, []any{code, fields}); diff != "" {
				t.Errorf("code and fields: -want, +got:\n%s\n%v", diff, got.Result)
			}
			if tc.fields != nil && !strings.Contains(got.Result.Message, `ServiceInjectionPolicy.refract.dev "big" is invalid: `) {
				t.Errorf("message: got %q", got.Result.Message)
			}
		})
	}
}

// TestTooMuch: the memory for a review is bounded, whatever the size of its policy.
func TestTooMuch(t *testing.T) {
	reading := bounded.NewReader(100_000)
	handlers := map[string]http.Handler{
		"Mutate":   Mutate(reading, logr.Discard()),
		"Validate": Validate(Options{Reading: reading, Client: cluster(interceptor.Funcs{}), Allowed: (&authorizer{}).allowed, Log: logr.Discard()}),
	}
	lists := map[string]struct {
		spec string
		most uint64 // Allocated MiB, including the review itself.
	}{
		"Beyond":  {`"env":[` + strings.Repeat("{},", 250_000) + "{}]", 64},
		"Env":     {`"env":[` + strings.Repeat("{},", 45_000) + "{}]", 32},
		"Volumes": {`"volumes":[` + strings.Repeat("{},", 45_000) + "{}]", 128},
	}
	for name, h := range handlers {
		for list, tc := range lists {
			t.Run(name+list, func(t *testing.T) {
				body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","object":` +
					`{"metadata":{"namespace":"shop","name":"db"},"spec":{"selector":{},` + tc.spec + `}}}}`
				var before, after goruntime.MemStats
				goruntime.ReadMemStats(&before)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
				goruntime.ReadMemStats(&after)
				if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > tc.most {
					t.Errorf("want at most %d MiB allocated, got %d", tc.most, got)
				}
				if refused := !strings.Contains(w.Body.String(), `"allowed":true`); refused != (name == "Validate" || list == "Beyond") || w.Body.Len() > 4096 {
					t.Errorf("refused: %t: %.500s", refused, w.Body)
				}
			})
		}
	}
}
