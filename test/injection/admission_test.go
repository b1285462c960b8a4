package injection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// row has a pod, the policies that exist when the pod is created, and the expected result. A policy without a selector
// gets one that selects the pod. The names of policies and pods begin with the name of the row.
type row struct {
	reason string
	// old and policies are the specs of policies, by name. The policies in old are created earlier, in another second.
	old, policies map[string]string
	// annotations and spec are those of the pod.
	annotations, spec string
	// want is the result of sketch for the created pod.
	want string
	// refused is a text in the API server's error if the pod is rejected.
	refused string
}

// admit creates the policies of all rows, and then their pods, each in a subtest.
func admit(s *scene, rows map[string]row) {
	s.Helper()
	names := slices.Sorted(maps.Keys(rows))
	var all []string
	for _, name := range names {
		all = append(all, s.admitPolicies(name, rows[name].old)...)
	}
	s.untilNextSecond()
	for _, name := range names {
		all = append(all, s.admitPolicies(name, rows[name].policies)...)
	}
	s.apply(sip("probe", "{selector: {matchLabels: {case: probe}}, env: [{name: PROBED, value: \"yes\"}]}"))
	s.inEffect("case: probe", append(all, "probe")...)
	for _, name := range names {
		s.Run(name, func(t *testing.T) { s.with(t).admitPod(name, rows[name]) })
	}
}

// admitPolicies creates the policies of a row, and returns their names.
func (s *scene) admitPolicies(name string, specs map[string]string) []string {
	s.Helper()
	var names []string
	prefix := strings.ToLower(name) + "."
	for _, policy := range slices.Sorted(maps.Keys(specs)) {
		u := s.read(sip(prefix+policy, specs[policy]))[0]
		if _, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "selector"); !ok {
			s.must(unstructured.SetNestedField(u.Object, strings.ToLower(name), "spec", "selector", "matchLabels", "case"))
		}
		s.must(s.api.Create(s.Context(), u))
		names = append(names, u.GetName())
	}
	return names
}

// untilNextSecond waits until new objects have a later creation timestamp than existing ones: the timestamps are whole
// seconds.
func (s *scene) untilNextSecond() {
	s.Helper()
	from := time.Now().Unix()
	s.until("the next second has come", func(context.Context) error {
		if time.Now().Unix() <= from+1 { // The API server has the same clock, but takes the timestamp a moment later.
			return errors.New("it has not come")
		}
		return nil
	})
}

func (s *scene) admitPod(name string, r row) {
	s.Helper()
	id := strings.ToLower(name)
	pod := s.read(podOf(id, "case: "+id, r.spec))[0]
	containersOf(pod, "image", "registry.example/app:1")
	for key, value := range s.read("{apiVersion: v1, kind: Pod, metadata: {annotations: {" + r.annotations + "}}}")[0].GetAnnotations() {
		pod.SetAnnotations(merged(pod.GetAnnotations(), key, value))
	}
	err := s.api.Create(s.Context(), pod)
	if r.refused != "" {
		if err == nil || !strings.Contains(err.Error(), r.refused) || !strings.Contains(err.Error(), id+".") {
			s.Errorf("%s\nwant the pod refused with %q and the policy's name, got %v", r.reason, r.refused, err)
		}
		return
	}
	if err != nil {
		s.Fatalf("%s\nThe pod: %v", r.reason, err)
	}
	p, err := typed(pod)
	s.must(err)
	got, err := sketch(p)
	s.must(err)
	if diff := cmp.Diff(lines(r.want), strings.ReplaceAll(got, id+".", "")); diff != "" {
		s.Errorf("%s\nThe pod: -want, +got:\n%s\nIts record is %s", r.reason, diff, p.Annotations[refractv1beta1.InjectionAnnotation])
	}
	s.admitAgain(r, p)
}

// admitAgain creates a second pod from the first one after its injection. The injection must add nothing. It must not
// trust the annotation of the first injection, either.
func (s *scene) admitAgain(r row, p *corev1.Pod) {
	s.Helper()
	again := p.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Name: p.Name + "-again", Namespace: p.Namespace, Labels: p.Labels, Annotations: p.Annotations}
	if err := s.api.Create(s.Context(), again); err != nil {
		s.Fatalf("%s\nThe second pod: %v", r.reason, err)
	}
	before, err := sketch(p)
	s.must(err)
	after, err := sketch(again)
	s.must(err)
	if diff := cmp.Diff(before, after); diff != "" {
		s.Errorf("%s\nThe second pod: -first, +second:\n%s", r.reason, diff)
	}
	if diff := cmp.Diff(p.Spec, again.Spec); diff != "" {
		s.Errorf("%s\nThe spec of the second pod: -first, +second:\n%s", r.reason, diff)
	}
}

// containersOf sets a field in containers that lack it.
func containersOf(pod *unstructured.Unstructured, field, value string) {
	spec := pod.Object["spec"].(map[string]any)
	for _, list := range []string{"initContainers", "containers"} {
		all, _ := spec[list].([]any)
		for _, c := range all {
			if m := c.(map[string]any); m[field] == nil {
				m[field] = value
			}
		}
	}
}

func merged(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

const (
	port  = `env: [{name: DB_PORT, value: "6379"}]`
	cache = `volumes: [{name: cache-volume, emptyDir: {}}], volumeMounts: [{mountPath: /cache, name: cache-volume}]`
	one   = `{containers: [{name: c1}]}`
)

// TestAdmissionTable checks the injection into a pod, row by row.
func TestAdmissionTable(t *testing.T) {
	t.Parallel()
	s := begin(t)
	admit(s, map[string]row{
		"Selected": {
			reason: "Policies apply if their selectors match.",
			policies: map[string]string{
				"p":     `{` + port + `}`,
				"q":     `{selector: {matchExpressions: [{key: case, operator: In, values: [selected, other]}, {key: other, operator: DoesNotExist}]}, env: [{name: Q, value: q}]}`,
				"other": `{selector: {matchLabels: {case: selected, other: "yes"}}, env: [{name: OTHER, value: "1"}]}`,
			},
			spec: one,
			want: "no_service: p,q\nc1: env DB_PORT=6379 Q=q",
		},
		"OldestFirst": {
			reason:   "The oldest policy is applied first, and wins conflicts.",
			old:      map[string]string{"z": `{env: [{name: A, value: old}]}`},
			policies: map[string]string{"a": `{env: [{name: B, value: b}]}`, "b": `{env: [{name: A, value: new}]}`},
			spec:     one,
			want:     "no_service: z,a\nc1: env A=old B=b\nskipped b: EnvConflict",
		},
		"AllContainers": {
			reason:   "env, envFrom and mounts are appended in all containers and init containers, and volumes in the pod.",
			policies: map[string]string{"p": `{service: db, ` + port + `, envFrom: [{configMapRef: {name: conf}}, {prefix: S_, secretRef: {name: key, optional: true}}], ` + cache + `}`},
			spec: `{volumes: [{name: mine, emptyDir: {}}], initContainers: [{name: i1}, {name: side, restartPolicy: Always}],
				containers: [{name: c1, env: [{name: GET_HOSTS_FROM, value: dns}], envFrom: [{configMapRef: {name: own}}], volumeMounts: [{name: mine, mountPath: /mine}]}, {name: c2}]}`,
			want: `
				db: p
				volume mine: emptyDir
				volume cache-volume: emptyDir
				i1: env DB_PORT=6379; from :configmap/conf S_:secret/key?; mount /cache=cache-volume
				side: env DB_PORT=6379; from :configmap/conf S_:secret/key?; mount /cache=cache-volume
				c1: env GET_HOSTS_FROM=dns DB_PORT=6379; from :configmap/own :configmap/conf S_:secret/key?; mount /mine=mine /cache=cache-volume
				c2: env DB_PORT=6379; from :configmap/conf S_:secret/key?; mount /cache=cache-volume`,
		},
		"SameContent": {
			reason:   "Equal items are not added again.",
			policies: map[string]string{"p": `{service: db, ` + port + `, envFrom: [{secretRef: {name: key}}], ` + cache + `}`},
			spec:     `{containers: [{name: c1, ` + port + `, envFrom: [{secretRef: {name: key}}], volumeMounts: [{mountPath: /cache, name: cache-volume}]}], volumes: [{name: cache-volume, emptyDir: {}}]}`,
			want:     "db: p\nvolume cache-volume: emptyDir\nc1: env DB_PORT=6379; from :secret/key; mount /cache=cache-volume",
		},
		"SameAfterDefaults": {
			reason: "Defaults of the API server make no difference.",
			policies: map[string]string{"p": `{env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}],
				volumes: [{name: s, secret: {secretName: key}}, {name: c, configMap: {name: conf}}, {name: d, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}},
				{name: h, hostPath: {path: /dev}}, {name: j, projected: {sources: [{serviceAccountToken: {path: t}}]}}, {name: e, emptyDir: {sizeLimit: 1024Mi}}]}`},
			spec: `{containers: [{name: c1, env: [{name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]}],
				volumes: [{name: s, secret: {secretName: key, defaultMode: 420}}, {name: c, configMap: {name: conf, defaultMode: 420}}, {name: d, downwardAPI: {defaultMode: 420, items: [{path: a, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}},
				{name: h, hostPath: {path: /dev, type: ""}}, {name: j, projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}]}}, {name: e, emptyDir: {sizeLimit: 1Gi}}]}`,
			want: `
				no_service: p
				volume s: secret/key 644
				volume c: configmap/conf 644
				volume d: {"downwardAPI":{"items":[{"path":"a","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}],"defaultMode":420}}
				volume h: {"hostPath":{"path":"/dev","type":""}}
				volume j: projected
				volume e: emptyDir
				c1: env POD<metadata.name`,
		},
		"EnvConflict": {
			reason:   "A variable with another value is a conflict: the whole policy is skipped, but no other policy is.",
			policies: map[string]string{"p": `{service: db, ` + port + `, ` + cache + `}`, "q": `{env: [{name: Q, value: q}]}`},
			spec:     `{containers: [{name: c1}, {name: c2, env: [{name: DB_PORT, value: "7000"}]}]}`,
			want:     "no_service: q\nc1: env Q=q\nc2: env DB_PORT=7000 Q=q\nskipped p: EnvConflict",
		},
		"EnvFromConflict": {
			reason:   "The same source with another value of optional is a conflict.",
			policies: map[string]string{"p": `{` + port + `, envFrom: [{configMapRef: {name: conf, optional: true}}]}`},
			spec:     `{containers: [{name: c1, envFrom: [{configMapRef: {name: conf}}]}]}`,
			want:     "c1: from :configmap/conf\nskipped p: EnvFromConflict",
		},
		"VolumeConflict": {
			reason:   "Another volume with the same name is a conflict.",
			policies: map[string]string{"p": `{` + port + `, ` + cache + `}`},
			spec:     `{containers: [{name: c1}], volumes: [{name: cache-volume, configMap: {name: conf}}]}`,
			want:     "volume cache-volume: configmap/conf 644\nskipped p: VolumeConflict",
		},
		"MountConflict": {
			reason:   "Another mount at the same path is a conflict, even if the path is written differently.",
			policies: map[string]string{"p": `{` + port + `, volumes: [{name: v, emptyDir: {}}], volumeMounts: [{mountPath: /opt/, name: v}]}`},
			spec:     `{containers: [{name: c1, volumeMounts: [{mountPath: /opt, name: mine}]}], volumes: [{name: mine, emptyDir: {}}]}`,
			want:     "volume mine: emptyDir\nc1: mount /opt=mine\nskipped p: MountConflict",
		},
		"Reject": {
			reason:   "With onConflict: Reject, the pod is rejected.",
			policies: map[string]string{"p": `{onConflict: Reject, ` + port + `}`},
			spec:     `{containers: [{name: c1, env: [{name: DB_PORT, value: "7000"}]}]}`,
			refused:  "DB_PORT",
		},
		"RejectWithoutConflict": {
			reason:   "Without a conflict, it is not rejected.",
			policies: map[string]string{"p": `{onConflict: Reject, ` + port + `}`},
			spec:     one,
			want:     "no_service: p\nc1: env DB_PORT=6379",
		},
		"TwoPaths": {
			reason: "One volume may be mounted at two paths.",
			policies: map[string]string{
				"p": `{volumes: [{name: v, emptyDir: {}}], volumeMounts: [{mountPath: /a, name: v, subPath: a}, {mountPath: /b, name: v, readOnly: true}]}`,
			},
			spec: one,
			want: "no_service: p\nvolume v: emptyDir\nc1: mount /a=v/a /b=v:ro",
		},
		"EnvFrom": {
			reason:   "Sources with another prefix or another kind are different.",
			policies: map[string]string{"p": `{envFrom: [{configMapRef: {name: conf}}, {prefix: P_, configMapRef: {name: conf}}, {secretRef: {name: conf}}]}`},
			spec:     `{containers: [{name: c1, envFrom: [{configMapRef: {name: conf}}]}]}`,
			want:     "no_service: p\nc1: from :configmap/conf P_:configmap/conf :secret/conf",
		},
		"OneService": {
			reason:   "Each service has an annotation with the names of its policies.",
			policies: map[string]string{"a": `{service: db, env: [{name: A, value: a}]}`, "b": `{service: db, env: [{name: B, value: b}]}`, "c": `{service: mq, env: [{name: C, value: c}]}`},
			spec:     one,
			want:     "db: a,b\nmq: c\nc1: env A=a B=b C=c",
		},
		"OptOut": {
			reason:      "The pod opts out.",
			policies:    map[string]string{"p": `{` + port + `}`},
			annotations: `refract.dev/inject: "false"`,
			spec:        one,
		},
		"OptOutOfPodPreset": {
			reason:      "The pod opts out with the annotation of PodPreset.",
			policies:    map[string]string{"p": `{` + port + `}`},
			annotations: `podpreset.admission.kubernetes.io/exclude: "true"`,
			spec:        one,
		},
		"OptOutMisspelt": {
			reason:      "Other values do not opt out.",
			policies:    map[string]string{"p": `{` + port + `}`},
			annotations: `podpreset.admission.kubernetes.io/exclude: "True", refract.dev/inject: "no"`,
			spec:        one,
			want:        "no_service: p\nc1: env DB_PORT=6379",
		},
		"Mirror": {
			reason:      "The pod is the mirror of a static pod.",
			policies:    map[string]string{"p": `{` + port + `}`},
			annotations: `kubernetes.io/config.mirror: abc`,
			spec:        `{nodeName: node-1, containers: [{name: c1}]}`,
		},
		"Scope": {
			reason: "Containers are chosen by name and kind.",
			policies: map[string]string{
				"p": `{containers: {include: ["web*", side], exclude: [web-debug]}, ` + port + `}`,
				"q": `{containers: {initContainers: false}, env: [{name: Q, value: q}]}`,
				"r": `{containers: {include: [nobody]}, env: [{name: R, value: r}]}`,
			},
			spec: `{initContainers: [{name: i1}, {name: side, restartPolicy: Always}], containers: [{name: web-1}, {name: web-debug}, {name: other}]}`,
			want: "no_service: p,q\nside: env DB_PORT=6379\nweb-1: env DB_PORT=6379 Q=q\nweb-debug: env Q=q\nother: env Q=q\nskipped r: NoContainer",
		},
		"Prepend": {
			reason:   "The pod's own variables can refer to variables before them.",
			policies: map[string]string{"p": `{envPosition: Prepend, env: [{name: DB_HOST, value: db}, {name: DB_PORT, value: "6379"}]}`, "q": `{env: [{name: Q, value: q}]}`},
			spec:     `{containers: [{name: c1, env: [{name: URL, value: "http://$(DB_HOST):80"}]}]}`,
			want:     "no_service: p,q\nc1: env DB_HOST=db DB_PORT=6379 URL=http://$(DB_HOST):80 Q=q",
		},
		"Audit": {
			reason:   "Mode Audit changes nothing.",
			policies: map[string]string{"p": `{mode: Audit, ` + port + `}`},
			spec:     one,
		},
		"VolumeOfThePod": {
			reason:   "A mount can use a volume of the pod. If there is none, the mount would make the pod invalid.",
			policies: map[string]string{"p": `{volumeMounts: [{mountPath: /p, name: mine}]}`, "q": `{volumeMounts: [{mountPath: /q, name: nobodys}], env: [{name: Q, value: q}]}`},
			spec:     `{containers: [{name: c1}], volumes: [{name: mine, emptyDir: {}}]}`,
			want:     "no_service: p\nvolume mine: emptyDir\nc1: mount /p=mine\nskipped q: VolumeMissing",
		},
	})
}

// TestOrderOfEqualAge: if two policies were created in the same second, their names decide the order.
func TestOrderOfEqualAge(t *testing.T) {
	t.Parallel()
	s := begin(t)
	labels := "case: order"
	s.until("two policies have the same creation timestamp", func(ctx context.Context) error {
		both := s.read(sip("b", `{service: db, selector: {matchLabels: {case: order}}, env: [{name: X, value: b}]}`) + "\n---\n" +
			sip("a", `{service: db, selector: {matchLabels: {case: order}}, env: [{name: X, value: a}]}`))
		// Concurrently: on a busy machine, one creation may take seconds.
		s.many(len(both), len(both), func(ctx context.Context, i int) error { return s.api.Create(ctx, both[i]) })
		b, a := both[0].GetCreationTimestamp(), both[1].GetCreationTimestamp()
		if b.Equal(&a) {
			return nil
		}
		s.must(s.api.DeleteAllOf(ctx, &refractv1beta1.ServiceInjectionPolicy{}, client.InNamespace(s.ns)))
		return fmt.Errorf("they were created at %s and %s", b, a)
	})
	s.inEffect(labels, "a", "b")
	for i := range 3 {
		p, err := typed(s.create(podOf(fmt.Sprint("pod-", i), labels, `{containers: [{name: c1, image: i}]}`))[0])
		s.must(err)
		got, err := sketch(p)
		s.must(err)
		if diff := cmp.Diff("db: a\nc1: env X=a\nskipped b: EnvConflict", got); diff != "" {
			t.Errorf("The pod: -want, +got:\n%s", diff)
		}
	}
}

// TestRecord checks the annotation in which the injection records the injected items of a pod.
func TestRecord(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(
		sip("db", `{service: db, selector: {}, `+port+`, envFrom: [{prefix: S_, secretRef: {name: key, optional: true}}], `+cache+`}`),
		sip("there", `{service: db, selector: {}, env: [{name: OWN, value: own}]}`),
		sip("wrong", `{selector: {}, env: [{name: OWN, value: other}]}`),
	)
	s.inEffect("a: b", "db", "there", "wrong")
	hashes := map[string]string{}
	for _, name := range []string{"db", "there"} {
		p := s.untilPolicy(name, "has a hash", func(p *refractv1beta1.ServiceInjectionPolicy) error {
			if p.Status.Hash == "" {
				return errors.New("it has no hash")
			}
			return nil
		})
		hashes[name] = p.Status.Hash
	}
	p, err := typed(s.create(podOf("web", "a: b", `{containers: [{name: c1, image: i, env: [{name: OWN, value: own}]}]}`))[0])
	s.must(err)
	got, err := recordOf(p)
	s.must(err)
	if got.Hash == "" || len(got.Skipped) != 1 || !strings.Contains(got.Skipped[0].Message, "OWN") {
		t.Errorf("The record is %s", inJSON(got))
	}
	want := &inject.Record{
		Version: 1, Hash: got.Hash, Containers: []string{"c1"},
		Applied: []inject.RecordApplied{
			{Policy: "db", Generation: 1, Hash: hashes["db"], Env: []string{"DB_PORT"}, EnvFrom: []string{"S_:Secret/key"}, Volumes: []string{"cache-volume"}, Mounts: []string{"/cache"}},
			{Policy: "there", Generation: 1, Hash: hashes["there"]},
		},
		Skipped: []inject.RecordSkipped{{Policy: "wrong", Reason: inject.ReasonEnvConflict, Message: got.Skipped[0].Message}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("The record: -want, +got:\n%s", diff)
	}
}
