package injection

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/harness"
)

// longName has 200 characters: valid as the name of a policy, but not in the key of an annotation.
var longName = strings.Repeat("long-name.", 19) + "long-names"

// TestTrickyCases tests the cases in which some other injectors fail, in the
// order in which they were collected. Cases that need more than a single pod
// have their own tests:
//
//	9, idempotency: all rows here and of TestAdmissionTable
//	17, a broken selector: TestBrokenPolicy
//	18, two namespaces, 22, unknown fields: below
//	20, long names, and dry runs and generated names: below
//	23, containers that are added later: TestSidecar
//	24, updates: TestImmutable, TestNoSecondRollout
//	25, existing pods: TestRecreation
//
//	9, idempotency: all rows here and of TestAdmissionTable
//	17, a broken selector: TestBrokenPolicy
//	18, two namespaces, 22, unknown fields: below
//	20, long names, and dry runs and generated names: below
//	23, containers that are added later: TestSidecar
//	24, updates: TestImmutable, TestNoSecondRollout
//	25, existing pods: TestRecreation
func TestTrickyCases(t *testing.T) {
	t.Parallel()
	s := begin(t)
	const db = `{service: db, ` + port + `}`
	admit(s, map[string]row{
		"Case01": {
			reason:   "A conflict in one container affects all containers.",
			policies: map[string]string{"p1": db},
			spec:     `{containers: [{name: c1}, {name: c2, env: [{name: DB_PORT, value: "7000"}]}]}`,
			want:     "c2: env DB_PORT=7000\nskipped p1: EnvConflict",
		},
		"Case02": {
			reason:   "A conflict in an init container counts, unless the policy excludes init containers.",
			policies: map[string]string{"p1": db, "p2": `{containers: {initContainers: false}, env: [{name: I, value: "2"}]}`},
			spec:     `{initContainers: [{name: i1, env: [{name: DB_PORT, value: "1"}, {name: I, value: "1"}]}], containers: [{name: c1}]}`,
			want:     "no_service: p2\ni1: env DB_PORT=1 I=1\nc1: env I=2\nskipped p1: EnvConflict",
		},
		"Case03": {
			reason:   "The older of two policies in conflict is applied.",
			old:      map[string]string{"z1": db},
			policies: map[string]string{"a2": `{service: db, env: [{name: DB_PORT, value: "7000"}]}`},
			spec:     one,
			want:     "db: z1\nc1: env DB_PORT=6379\nskipped a2: EnvConflict",
		},
		"Case04": {
			reason:   "A conflict of one policy does not affect others.",
			policies: map[string]string{"p1": `{env: [{name: FOO, value: "1"}]}`, "p2": `{env: [{name: BAR, value: "2"}]}`},
			spec:     `{containers: [{name: c1, env: [{name: FOO, value: "0"}]}]}`,
			want:     "no_service: p2\nc1: env FOO=0 BAR=2\nskipped p1: EnvConflict",
		},
		"Case05": {
			reason:   "Two policies with equal items: each item is added once, and both policies are named.",
			policies: map[string]string{"p1": `{service: db, ` + port + `, ` + cache + `}`, "p2": `{service: db, ` + port + `, ` + cache + `}`},
			spec:     one,
			want:     "db: p1,p2\nvolume cache-volume: emptyDir\nc1: env DB_PORT=6379; mount /cache=cache-volume",
		},
		"Case06": {
			reason:   "The pod already has all items.",
			policies: map[string]string{"p1": `{service: db, ` + port + `, ` + cache + `}`},
			spec:     `{containers: [{name: c1, ` + port + `, volumeMounts: [{mountPath: /cache, name: cache-volume}]}], volumes: [{name: cache-volume, emptyDir: {}}]}`,
			want:     "db: p1\nvolume cache-volume: emptyDir\nc1: env DB_PORT=6379; mount /cache=cache-volume",
		},
		"Case07": {
			reason:   "Field references are equal with and without the default version.",
			policies: map[string]string{"p1": `{env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}`},
			spec:     `{containers: [{name: c1, env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}`,
			want:     "no_service: p1\nc1: env POD<metadata.name",
		},
		"Case08": {
			reason: "Volumes are equal with and without the default mode, but not with another mode.",
			policies: map[string]string{
				"p1": `{volumes: [{name: a, secret: {secretName: x}}], env: [{name: A, value: a}]}`,
				"p2": `{volumes: [{name: b, secret: {secretName: x}}], env: [{name: B, value: b}]}`,
			},
			spec: `{containers: [{name: c1}], volumes: [{name: a, secret: {secretName: x, defaultMode: 420}}, {name: b, secret: {secretName: x, defaultMode: 256}}]}`,
			want: "no_service: p1\nvolume a: secret/x 644\nvolume b: secret/x 400\nc1: env A=a\nskipped p2: VolumeConflict",
		},
		"Case10": {
			reason:   "One volume at two paths.",
			policies: map[string]string{"p1": `{volumes: [{name: v, emptyDir: {}}], volumeMounts: [{mountPath: /a, name: v}, {mountPath: /b, name: v, subPath: b}]}`},
			spec:     one,
			want:     "no_service: p1\nvolume v: emptyDir\nc1: mount /a=v /b=v/b",
		},
		"Case11": {
			reason:   "A slash at the end of a path makes no difference.",
			policies: map[string]string{"p1": `{volumes: [{name: v, emptyDir: {}}], volumeMounts: [{mountPath: /opt/, name: v}]}`},
			spec:     `{containers: [{name: c1, volumeMounts: [{mountPath: /opt, name: m}]}], volumes: [{name: m, emptyDir: {}}]}`,
			want:     "volume m: emptyDir\nc1: mount /opt=m\nskipped p1: MountConflict",
		},
		"Case12": {
			reason:   "The pod keeps its claim.",
			policies: map[string]string{"p1": `{service: db, ` + port + `, ` + cache + `}`},
			spec:     `{containers: [{name: c1}], volumes: [{name: cache-volume, persistentVolumeClaim: {claimName: c}}]}`,
			want:     "volume cache-volume: claim/c\nskipped p1: VolumeConflict",
		},
		"Case13": {
			reason:   "The API server adds the mount of the token before it calls webhooks.",
			policies: map[string]string{"p1": `{volumes: [{name: v, emptyDir: {}}], volumeMounts: [{mountPath: /var/run/secrets/kubernetes.io/serviceaccount, name: v}]}`},
			spec:     `{automountServiceAccountToken: true, containers: [{name: c1}]}`,
			want:     "volume kube-api-access: projected\nc1: mount /var/run/secrets/kubernetes.io/serviceaccount=kube-api-access:ro\nskipped p1: MountConflict",
		},
		"Case14": {
			reason:   "Only later variables can refer to a variable.",
			policies: map[string]string{"p1": `{env: [{name: DB_HOST, value: db}]}`, "p2": `{envPosition: Prepend, env: [{name: DB_PORT, value: "1"}]}`},
			spec:     `{containers: [{name: c1, env: [{name: URL, value: "http://$(DB_HOST):$(DB_PORT)"}]}]}`,
			want:     "no_service: p1,p2\nc1: env DB_PORT=1 URL=http://$(DB_HOST):$(DB_PORT) DB_HOST=db",
		},
		"Case15": {
			reason: "Sources with the same prefix are equal, and in conflict if only one is optional.",
			policies: map[string]string{
				"p1": `{envFrom: [{configMapRef: {name: conf}}]}`, "p2": `{envFrom: [{prefix: P_, configMapRef: {name: conf}}]}`,
				"p3": `{envFrom: [{configMapRef: {name: conf, optional: true}}]}`,
			},
			spec: `{containers: [{name: c1, envFrom: [{configMapRef: {name: conf}}]}]}`,
			want: "no_service: p1,p2\nc1: from :configmap/conf P_:configmap/conf\nskipped p3: EnvFromConflict",
		},
		"Case16": {
			reason:   "The content of a source is not read, so it causes no conflict.",
			policies: map[string]string{"p1": `{env: [{name: KEY, value: a}]}`},
			spec:     `{containers: [{name: c1, envFrom: [{configMapRef: {name: has-key}}]}]}`,
			want:     "no_service: p1\nc1: env KEY=a; from :configmap/has-key",
		},
		"Case19": {
			reason:      "Only the exact values opt out.",
			policies:    map[string]string{"p1": db},
			annotations: `podpreset.admission.kubernetes.io/exclude: "1", refract.dev/inject: ""`,
			spec:        one,
			want:        "db: p1\nc1: env DB_PORT=6379",
		},
		"Case21": {
			reason:   "Lists may be empty, null or missing.",
			policies: map[string]string{"p1": `{` + port + `, envFrom: [{configMapRef: {name: conf}}], ` + cache + `}`},
			spec:     `{volumes: null, initContainers: null, containers: [{name: c1, env: null, envFrom: [], volumeMounts: null}, {name: c2, env: []}]}`,
			want: `
				no_service: p1
				volume cache-volume: emptyDir
				c1: env DB_PORT=6379; from :configmap/conf; mount /cache=cache-volume
				c2: env DB_PORT=6379; from :configmap/conf; mount /cache=cache-volume`,
		},
	})
}

// TestEveryPod is case 17: the selector {} selects every pod of the namespace, also pods without labels, and no pod of
// another namespace. It also covers a long name (case 20) and a pod without a namespace in its manifest (case 18).
func TestEveryPod(t *testing.T) {
	t.Parallel()
	s := begin(t)
	elsewhere := beginOn(t, member, s.ns+"-elsewhere")
	s.warnings.take()
	s.apply(sip(longName, `{selector: {}, `+port+`}`))
	if got := s.warnings.take(); !strings.Contains(got, "every pod") {
		t.Errorf("A policy for every pod: want a warning, got %q", got)
	}
	s.inEffect("a: b", longName)
	cfg, err := shared.Config(member)
	s.must(err)
	plain, err := dynamic.NewForConfig(cfg)
	s.must(err)
	for _, in := range []*scene{s, elsewhere} {
		want := map[bool]string{true: "no_service: " + longName + "\nc1: env DB_PORT=6379"}[in == s]
		for name, metadata := range map[string]string{"bare": `{name: bare}`, "labelled": `{name: labelled, labels: {any: label}}`, "generated": `{generateName: generated-}`} {
			pod := s.read(`{apiVersion: v1, kind: Pod, metadata: ` + metadata + `, spec: {schedulerName: nobody, containers: [{name: c1, image: i}]}}`)[0]
			pod.SetNamespace("")
			got, err := plain.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(in.ns).Create(t.Context(), pod, metav1.CreateOptions{})
			s.must(err)
			p, err := typed(got)
			s.must(err)
			is, err := sketch(p)
			s.must(err)
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("The pod %s of %s: -want, +got:\n%s", name, in.ns, diff)
			}
		}
	}
	s.until("the policy counts its pods", func(ctx context.Context) error {
		p, err := s.policy(ctx, longName)
		if err == nil && p.Status.Injected != 3 {
			err = fmt.Errorf("want 3 injected, its status is %s", inJSON(p.Status))
		}
		return err
	})
}

// TestSelectorRequired is the second half of case 17: invalid policies are rejected.
func TestSelectorRequired(t *testing.T) {
	t.Parallel()
	s := begin(t)
	for reason, spec := range map[string]string{
		"selector":                  `{` + port + `}`,
		"env, envFrom, volumes":     `{selector: {}}`,
		"service":                   `{selector: {}, implicit: true}`,
		"DB_PORT":                   `{selector: {}, env: [{name: DB_PORT, value: a}, {name: DB_PORT, value: b}]}`,
		"Foo":                       `{selector: {matchExpressions: [{key: a, operator: Foo}]}, ` + port + `}`,
		"volumes[0].name":           `{selector: {}, volumes: [{name: Not_A_Name, emptyDir: {}}]}`,
		"value and valueFrom":       `{selector: {}, env: [{name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}`,
		"matchExpressions[0].value": `{selector: {matchExpressions: [{key: a, operator: In, values: []}]}, ` + port + `}`,
	} {
		err := s.api.Create(t.Context(), s.read(sip("wrong", spec))[0])
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: want it refused with %q, got %v", spec, reason, err)
		}
	}
}

// TestImmutable is the first half of case 24: the service and the selector of a policy cannot be changed.
func TestImmutable(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(sip("with", `{service: db, selector: {matchLabels: {a: b}}, `+port+`}`), sip("without", `{selector: {matchLabels: {a: b}}, `+port+`}`))
	for _, tc := range []struct{ policy, patch, want string }{
		{"with", `{"spec":{"service":"other"}}`, "service is immutable"},
		{"with", `{"spec":{"service":null}}`, "service is immutable"},
		{"without", `{"spec":{"service":"db"}}`, "service is immutable"},
		{"with", `{"spec":{"selector":{"matchLabels":{"a":"c"}}}}`, "selector is immutable"},
		{"with", `{"spec":{"env":[{"name":"DB_PORT","value":7000}]}}`, ""},
		{"with", `{"metadata":{"labels":{"a":"b"}}}`, ""},
	} {
		p := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: tc.policy}}
		err := s.api.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(tc.patch)))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: want an error with %q, got %v", tc.patch, tc.want, err)
		}
	}
}

// TestOverlapWarning: a new policy conflicts with another one for pods that both select. The warning names the labels
// of such a pod.
func TestOverlapWarning(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(sip("first", `{selector: {matchLabels: {role: frontend}}, `+port+`}`))
	s.accepted("first")
	second := sip("second", `{selector: {matchExpressions: [{key: tier, operator: In, values: [gold, silver]}]}, env: [{name: DB_PORT, value: "7000"}]}`)
	s.until("the author of the second policy gets a warning", func(ctx context.Context) error { // The replica that answers may not know the first policy yet.
		s.warnings.take()
		if err := s.api.Create(ctx, s.read(second)[0], client.DryRunAll); err != nil {
			return err
		}
		got := s.warnings.take()
		for _, want := range []string{"first", "DB_PORT", "role", "frontend", "tier", "gold"} {
			if !strings.Contains(got, want) {
				return fmt.Errorf("want %q in the warning, got %q", want, got)
			}
		}
		return nil
	})
	s.apply(second)
	s.warnings.take()
	s.apply(sip("third", `{selector: {matchExpressions: [{key: role, operator: NotIn, values: [frontend]}, {key: tier, operator: DoesNotExist}]}, env: [{name: DB_PORT, value: "8000"}]}`))
	if got := s.warnings.take(); strings.Contains(got, "DB_PORT") {
		t.Errorf("no pod can match both policies: want no warning, got %q", got)
	}
}

// TestDryRun: a dry run shows the injection, but has no effect.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(sip("p", `{service: db, selector: {}, `+port+`}`), sip("q", `{selector: {}, env: [{name: OWN, value: other}]}`))
	s.inEffect("a: b", "p", "q")
	pod := s.create(podOf("dry", "a: b", `{containers: [{name: c1, image: i, env: [{name: OWN, value: own}]}]}`), client.DryRunAll)[0]
	p, err := typed(pod)
	s.must(err)
	got, err := sketch(p)
	s.must(err)
	if diff := cmp.Diff("db: p\nc1: env OWN=own DB_PORT=6379\nskipped q: EnvConflict", got); diff != "" {
		t.Errorf("The pod of the dry run: -want, +got:\n%s", diff)
	}
	s.must(absent(s.api.Get(t.Context(), client.ObjectKeyFromObject(p), &corev1.Pod{})))
	events := &corev1.EventList{}
	s.must(s.api.List(t.Context(), events, client.InNamespace(s.ns)))
	for i := range events.Items {
		if e := &events.Items[i]; strings.Contains(e.Message, "dry") {
			t.Errorf("There is an event about the dry run: %s", e.Message)
		}
	}
}

// TestUnknownFields is case 22: fields of the newest Kubernetes survive in the pod and in the policy, even if the
// libraries of this program do not know them.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(sip("p", `{selector: {}, `+port+`, `+cache+`}`))
	s.inEffect("a: b", "p")
	const spec = `{hostUsers: true, volumes: [{name: files, emptyDir: {}}], resources: {limits: {cpu: "1"}}, containers: [{name: c1, image: i, restartPolicy: Never,
		restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}],
		env: [{name: A, valueFrom: {fileKeyRef: {volumeName: files, path: a.env, key: A, optional: true}}}],
		volumeMounts: [{name: files, mountPath: /f, recursiveReadOnly: Disabled}]}]}`
	elsewhere := beginOn(t, member, s.ns+"-elsewhere")
	want := elsewhere.create(podOf("web", "a: b", spec))[0]
	got := s.create(podOf("web", "a: b", spec))[0]
	c := got.Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	c["env"] = c["env"].([]any)[:1]
	c["volumeMounts"] = c["volumeMounts"].([]any)[:1]
	got.Object["spec"].(map[string]any)["volumes"] = got.Object["spec"].(map[string]any)["volumes"].([]any)[:1]
	if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
		t.Errorf("Without the injected items: -no policy, +policy:\n%s", diff)
	}
}

// TestNumbers: a number without quotes becomes a string, and the same write again changes nothing.
func TestNumbers(t *testing.T) {
	t.Parallel()
	s := begin(t)
	manifest := fmt.Sprintf("{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: kubectl, namespace: %s}, "+
		"spec: {selector: {}, env: [{name: DB_PORT, value: 6379}, {name: ZERO, value: 0}, {name: LESS, value: -1}]}}", s.ns)
	var generation int64
	for range 3 {
		if _, err := shared.Kubectl(member, manifest, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		u := s.read(sip("kubectl", "{}"))[0]
		s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(u), u))
		env, _, err := unstructured.NestedSlice(u.Object, "spec", "env")
		s.must(err)
		want := []any{map[string]any{"name": "DB_PORT", "value": "6379"}, map[string]any{"name": "ZERO", "value": "0"}, map[string]any{"name": "LESS", "value": "-1"}}
		if diff := cmp.Diff(want, env); diff != "" {
			t.Errorf("The stored variables: -want, +got:\n%s", diff)
		}
		if generation != 0 && u.GetGeneration() != generation {
			t.Errorf("The same apply has changed the generation to %d, was %d", u.GetGeneration(), generation)
		}
		generation = u.GetGeneration()
	}
	s.must(harness.Apply(t.Context(), s.api, s.read(sip("server-side", `{selector: {}, env: [{name: DB_PORT, value: 6379}]}`))[0].Object))
	p, err := s.policy(t.Context(), "server-side")
	s.must(err)
	if diff := cmp.Diff([]refractv1beta1.EnvVar{{Name: "DB_PORT", Value: "6379"}}, p.Spec.Env); diff != "" {
		t.Errorf("The stored variables: -want, +got:\n%s", diff)
	}
}
