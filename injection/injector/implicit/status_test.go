package implicit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// now is the time of the tests.
var now = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func policyOf(t *testing.T, text string) *refractv1beta1.ServiceInjectionPolicy {
	t.Helper()
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	p.Namespace, p.Name, p.Generation = "shop", "allow-database", 3
	return p
}

func serviceOf(t *testing.T, annotations string) *corev1.Service {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	s.Spec.Ports = []corev1.ServicePort{{Name: "redis", Port: 6379}}
	if err := yaml.UnmarshalStrict([]byte(annotations), &s.Annotations); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestComplete(t *testing.T) {
	const implicit = `spec: {service: db, implicit: true, selector: {}, env: [{name: OWN, value: "1"}]}` + "\n"
	cases := map[string]struct {
		reason      string
		policy      string
		annotations string // The annotations of the Service; empty without a Service.
		want        string // The status as YAML.
	}{
		"Explicit": {
			reason:      "A policy without implicit: true gets no items, even if the Service exists.",
			policy:      `spec: {service: db, selector: {}, env: [{name: OWN, value: "1"}]}`,
			annotations: `{refract.dev/env: '{"A":"b"}'}`,
			want:        "{}\n",
		},
		"TurnedOff": {
			reason: "After implicit is turned off, earlier items of the Service are removed.",
			policy: `spec: {service: db, selector: {}, env: [{name: OWN, value: "1"}]}
status: {fromService: {env: [{name: A, value: b}]}, effective: {env: [{name: A, value: b}]}}`,
			want: "{}\n",
		},
		"Found": {
			reason:      "The items of the Service are added to those of the policy, which have precedence.",
			policy:      implicit,
			annotations: `{refract.dev/env: '{"OWN":"2","OTHER":"3"}', refract.dev/mount: 'secret/tls:/tls:ro', refract.dev/env-from: 'configmap/a,secret/b'}`,
			want: `conditions:
- lastTransitionTime: "2026-03-01T12:00:00Z"
  message: 'Service db provides: 2 variables, 2 sources of variables, 1 mount'
  observedGeneration: 3
  reason: Found
  status: "True"
  type: ServiceFound
effective:
  env:
  - name: OWN
    value: "1"
  - name: OTHER
    value: "3"
  envFrom:
  - configMapRef:
      name: a
  - secretRef:
      name: b
  volumeMounts:
  - mountPath: /tls
    name: svc-secret-tls
    readOnly: true
  volumes:
  - name: svc-secret-tls
    secret:
      secretName: tls
fromService:
  env:
  - name: OWN
    value: "2"
  - name: OTHER
    value: "3"
  envFrom:
  - configMapRef:
      name: a
  - secretRef:
      name: b
  volumeMounts:
  - mountPath: /tls
    name: svc-secret-tls
    readOnly: true
  volumes:
  - name: svc-secret-tls
    secret:
      secretName: tls
`,
		},
		"Silent": {
			reason:      "A Service without annotations counts as found.",
			policy:      implicit,
			annotations: `{a: b}`,
			want: `conditions:
- lastTransitionTime: "2026-03-01T12:00:00Z"
  message: Service db has no annotation for its consumers
  observedGeneration: 3
  reason: Found
  status: "True"
  type: ServiceFound
effective:
  env:
  - name: OWN
    value: "1"
`,
		},
		"Gone": {
			reason: "Without the Service, only the items of the policy apply.",
			policy: implicit + `status:
  fromService: {env: [{name: A, value: b}]}
  conditions: [{type: ServiceFound, status: "True", reason: Found, message: "", lastTransitionTime: "2026-02-01T12:00:00Z"}]`,
			want: `conditions:
- lastTransitionTime: "2026-03-01T12:00:00Z"
  message: 'there is no Service db in the namespace: only the items of the policy
    itself are injected'
  observedGeneration: 3
  reason: NotFound
  status: "False"
  type: ServiceFound
effective:
  env:
  - name: OWN
    value: "1"
`,
		},
		"WrongFromTheBeginning": {
			reason:      "Without earlier items, the valid annotations count.",
			policy:      implicit,
			annotations: `{refract.dev/env: '{"A":"b"}', refract.dev/derive: colour}`,
			want: `conditions:
- lastTransitionTime: "2026-03-01T12:00:00Z"
  message: 'Service db: metadata.annotations[refract.dev/derive]: Unsupported value:
    "colour": supported values: "host", "port"; until this is fixed, status.fromService
    stays as it is'
  observedGeneration: 3
  reason: InvalidAnnotations
  status: "False"
  type: ServiceFound
effective:
  env:
  - name: OWN
    value: "1"
  - name: A
    value: b
fromService:
  env:
  - name: A
    value: b
`,
		},
		"WrongNow": {
			reason: "An invalid annotation does not remove items from the consumers. A condition whose status is unchanged keeps its time.",
			policy: implicit + `status:
  fromService: {env: [{name: A, value: b}], envFrom: [{secretRef: {name: db}}]}
  conditions: [{type: ServiceFound, status: "False", reason: InvalidAnnotations, message: "", lastTransitionTime: "2026-02-01T12:00:00Z"}]`,
			annotations: `{refract.dev/env: '{"A":"c"}', refract.dev/env-from: secrets/db}`,
			want: `conditions:
- lastTransitionTime: "2026-02-01T12:00:00Z"
  message: 'Service db: metadata.annotations[refract.dev/env-from]: Invalid value:
    "secrets/db": want secret/NAME or configmap/NAME, got "secrets/db"; until this
    is fixed, status.fromService stays as it is'
  observedGeneration: 3
  reason: InvalidAnnotations
  status: "False"
  type: ServiceFound
effective:
  env:
  - name: OWN
    value: "1"
  - name: A
    value: b
  envFrom:
  - secretRef:
      name: db
fromService:
  env:
  - name: A
    value: b
  envFrom:
  - secretRef:
      name: db
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, tc.policy)
			var service *corev1.Service
			if tc.annotations != "" {
				service = serviceOf(t, tc.annotations)
			}
			policyBefore, serviceBefore := p.DeepCopy(), service.DeepCopy()
			is := complete(p, service, now)
			content, err := is.content()
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(content)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s\ncomplete(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]any{policyBefore, serviceBefore}, []any{p, service}); diff != "" {
				t.Errorf("complete() changed its input: -before, +after:\n%s", diff)
			}
			p.Status = refractv1beta1.ServiceInjectionPolicyStatus{}
			if err := yaml.UnmarshalStrict(got, &p.Status); err != nil {
				t.Fatal(err)
			}
			if !serviceStatusOf(p).same(complete(p, service, metav1.Now())) {
				t.Error("What is written once is right, and not written again.")
			}
		})
	}
}

// TestTooMuch: annotations that are valid by themselves never invalidate a policy that is valid without them.
func TestTooMuch(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	policy := func(values ...int) *refractv1beta1.ServiceInjectionPolicy {
		p := policyOf(t, `spec: {service: db, implicit: true, selector: {}}`)
		for i, n := range values {
			p.Spec.Env = append(p.Spec.Env, refractv1beta1.EnvVar{Name: fmt.Sprintf("OWN_%d", i), Value: refractv1beta1.EnvValue(long(n))})
		}
		return p
	}
	said := func(n int) *refractv1beta1.InjectedItems {
		return &refractv1beta1.InjectedItems{Env: []refractv1beta1.EnvVar{{Name: "SAID", Value: refractv1beta1.EnvValue(long(n))}}}
	}
	much := []int{32000, 32000, 32000, 32000, 32000, 32000, 32000, 32000}
	for name, tc := range map[string]struct {
		reason string
		spec   []int // The lengths of the policy's own values.
		said   *refractv1beta1.InjectedItems
		want   string // The reason of the condition, and the names of the items that are taken over.
	}{
		"Fits":      {"The items fit the policy.", []int{1}, nil, "Found A B"},
		"First":     {"There are no earlier items.", much, nil, "InvalidAnnotations"},
		"Before":    {"The earlier items fit the policy.", much, said(3), "InvalidAnnotations SAID"},
		"Neither":   {"The earlier items do not fit the policy either.", much, said(32000), "InvalidAnnotations"},
		"OwnFaults": {"The policy is invalid without the Service, too.", append(much, much...), said(3), "Found A B"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy(tc.spec...)
			p.Status.FromService = tc.said
			s := complete(p, serviceOf(t, fmt.Sprintf(`{refract.dev/env: '{"A":"%s","B":"%[1]s"}'}`, long(30000))), now)
			names := []string{s.condition.Reason}
			if s.fromService != nil {
				for _, e := range s.fromService.Env {
					names = append(names, e.Name)
				}
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("%s\ngot %q, want %q: %.300s", tc.reason, got, tc.want, s.condition.Message)
			}
			const why = "Service db: its annotations do not fit the policy: "
			if s.condition.Status == metav1.ConditionFalse && !strings.HasPrefix(s.condition.Message, why) {
				t.Errorf("%s\nmessage: got %.300q, want %q first", tc.reason, s.condition.Message, why)
			}
			if tc.want == "Found A B" {
				return
			}
			p.Status.FromService = s.fromService
			if _, errs := inject.Compile(p); len(errs) > 0 {
				t.Errorf("%s\nThe policy is out of force: %.300v", tc.reason, errs)
			}
		})
	}
}
