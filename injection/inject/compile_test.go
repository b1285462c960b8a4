package inject

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// policyOf returns the policy "example" with this spec in YAML.
func policyOf(tb testing.TB, spec string) *refractv1beta1.ServiceInjectionPolicy {
	tb.Helper()
	p := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "myns", Name: "example"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		tb.Fatalf("%v in\n%s", err, spec)
	}
	return p
}

// compiled returns the compiled policy with this spec, which must be valid.
func compiled(tb testing.TB, spec string) *Policy {
	tb.Helper()
	p, errs := Compile(policyOf(tb, spec))
	if errs != nil {
		tb.Fatalf("%v in\n%s", errs.ToAggregate(), spec)
	}
	return p
}

// spelled returns the texts of errors.
func spelled(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// places returns the fields and types of errors.
func places(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Field+": "+err.Type.String())
	}
	return out
}

const everyPod = "selector: {matchLabels: {role: frontend}}\n"

func TestCompile(t *testing.T) {
	p := policyOf(t, `
service: db
selector: {matchLabels: {role: frontend}, matchExpressions: [{key: tier, operator: NotIn, values: [batch]}]}
env:
- {name: DB_PORT, value: 6379}
- {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: QUERY, value: "a<b&c"}
envFrom:
- {prefix: DB_, secretRef: {name: db-cred}}
- {configMapRef: {name: db-conf, optional: true}}
volumes: [{name: cache-volume, emptyDir: {}}]
volumeMounts: [{mountPath: /cache/, name: cache-volume}]
containers: {include: [web, "app-*", web], exclude: [istio-proxy], ephemeralContainers: true}
envPosition: Prepend
onConflict: Reject
mode: Audit
rollout: {strategy: Manual, minReadySeconds: 10}
`)
	p.Generation = 3
	before := p.DeepCopy()
	got, errs := Compile(p)
	if errs != nil {
		t.Fatal(errs.ToAggregate())
	}
	if diff := cmp.Diff(before, p); diff != "" {
		t.Errorf("Compile must not modify its argument: -before, +after:\n%s", diff)
	}

	type summary struct {
		Name, Namespace, Service, Author string
		Generation                       int64
		Mode, OnConflict, Position       string
		Rollout                          refractv1beta1.Rollout
		Scope                            string
		Items                            []string
	}
	items := []string{}
	for _, list := range [][]item{got.env, got.envFrom, got.volumes, got.mounts} {
		for _, it := range list {
			items = append(items, fmt.Sprintf("%s %s %s", it.id, it.volume, it.raw))
		}
	}
	want := summary{
		Name: "example", Namespace: "myns", Service: "db", Author: "ServiceInjectionPolicy myns/example",
		Generation: 3, Mode: "Audit", OnConflict: "Reject", Position: "Prepend",
		Rollout: refractv1beta1.Rollout{Strategy: "Manual", MaxConcurrent: 2, MinReadySeconds: 10},
		Scope:   "{[app-* web] [istio-proxy] true true}",
		Items: []string{
			`DB_PORT  {"name":"DB_PORT","value":"6379"}`,
			`POD  {"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}`,
			`QUERY  {"name":"QUERY","value":"a<b&c"}`,
			`DB_:Secret/db-cred  {"prefix":"DB_","secretRef":{"name":"db-cred"}}`,
			`:ConfigMap/db-conf  {"configMapRef":{"name":"db-conf","optional":true}}`,
			`cache-volume  {"name":"cache-volume","emptyDir":{}}`,
			`/cache cache-volume {"name":"cache-volume","mountPath":"/cache/"}`,
		},
	}
	diff := cmp.Diff(want, summary{
		Name: got.Name(), Namespace: got.Namespace(), Service: got.Service(), Author: got.Author().String(),
		Generation: got.Generation(), Mode: string(got.Mode()), OnConflict: string(got.OnConflict()), Position: string(got.position),
		Rollout: got.Rollout(), Scope: fmt.Sprint(got.scope), Items: items,
	})
	if diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	for _, labels := range []struct {
		labels map[string]string
		want   bool
	}{
		{map[string]string{"role": "frontend"}, true},
		{map[string]string{"role": "frontend", "tier": "batch"}, false},
		{nil, false},
	} {
		if got.Matches(labels.labels) != labels.want {
			t.Errorf("Matches(%v): want %t", labels.labels, labels.want)
		}
	}
}

// TestCompileMuch: a policy may inject exactly maxInjected bytes.
func TestCompileMuch(t *testing.T) {
	p := compiled(t, inline(everyPod+`{env: [{name: A, value: "`+strings.Repeat("x", maxInjected-len(`{"name":"A","value":""}`))+`"}]}`))
	if got := len(p.env[0].raw); got != maxInjected {
		t.Errorf("the policy injects %d bytes, want %d", got, maxInjected)
	}
}

// TestCompileSelector: a selector may have mostRequirements requirements. A longer one is not examined.
func TestCompileSelector(t *testing.T) {
	selecting := func(n int) *refractv1beta1.ServiceInjectionPolicy {
		values := strings.TrimSuffix(strings.Repeat("a,", n-2), ",")
		return policyOf(t, "{selector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: ["+values+"]}]}, env: [{name: A}]}")
	}
	if _, errs := Compile(selecting(mostRequirements)); errs != nil {
		t.Error(errs.ToAggregate())
	}
	_, errs := Compile(selecting(mostRequirements + 1))
	want := field.ErrorList{field.TooMany(field.NewPath("spec", "selector"), mostRequirements+1, mostRequirements)}
	if diff := cmp.Diff(want.ToAggregate().Error(), errs.ToAggregate().Error()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestCompileDefaults(t *testing.T) {
	p := compiled(t, `{selector: {}, env: [{name: A}]}`)
	if diff := cmp.Diff(refractv1beta1.Rollout{Strategy: "Rolling", MaxConcurrent: 2}, p.Rollout()); diff != "" {
		t.Errorf("rollout: -want, +got:\n%s", diff)
	}
	got := fmt.Sprintf("%s %s %s %v", p.Mode(), p.OnConflict(), p.position, p.scope)
	if diff := cmp.Diff("Enforce Skip Append {[] [] true false}", got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if !p.Matches(nil) {
		t.Error("the selector {} selects every pod")
	}
}

func TestCompileInvalid(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   []string
	}{
		"NoSelector": {
			reason: "A missing selector is an error: a policy for no pods, or for all, must be explicit.",
			spec:   `env: [{name: A}]`,
			want:   []string{`spec.selector: Required value: must choose pods by their labels; {} chooses every pod of the namespace`},
		},
		"BadSelector": {
			reason: "An invalid selector in storage must not select pods.",
			spec:   `{selector: {matchLabels: {"a b": c}, matchExpressions: [{key: a, operator: Foo}, {key: b, operator: In}]}, env: [{name: A}]}`,
			want: []string{
				`spec.selector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				`spec.selector.matchExpressions[0].operator: Invalid value: "Foo": not a valid selector operator`,
				`spec.selector.matchExpressions[1].values: Required value: must be specified when ` + "`operator` is 'In' or 'NotIn'",
			},
		},
		"Nothing": {
			reason: "A policy that injects nothing is a mistake.",
			spec:   everyPod,
			want:   []string{`spec: Required value: nothing to inject: there must be at least one of env, envFrom, volumes and volumeMounts, or a service with implicit: true`},
		},
		"ImplicitWithoutService": {
			reason: "Implicit items need a Service.",
			spec:   everyPod + `implicit: true`,
			want:   []string{`spec.service: Required value: implicit: true needs a service, whose annotations say what to inject`},
		},
		"Service": {
			reason: "The name of a Service is a DNS-1035 label.",
			spec:   everyPod + `{service: 1db, env: [{name: A}]}`,
			want:   []string{`spec.service: Invalid value: "1db": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`},
		},
		"Enums": {
			reason: "Other values may be in storage without validation by the schema.",
			spec:   everyPod + `{env: [{name: A}], envPosition: First, onConflict: Ignore, mode: Never, rollout: {strategy: Fast, maxConcurrent: -1, minReadySeconds: 90000}}`,
			want: []string{
				`spec.envPosition: Unsupported value: "First": supported values: "Append", "Prepend"`,
				`spec.onConflict: Unsupported value: "Ignore": supported values: "Skip", "Reject"`,
				`spec.mode: Unsupported value: "Never": supported values: "Enforce", "Audit"`,
				`spec.rollout.strategy: Unsupported value: "Fast": supported values: "Rolling", "Manual", "None"`,
				`spec.rollout.maxConcurrent: Invalid value: -1: must be between 1 and 1000, inclusive`,
				`spec.rollout.minReadySeconds: Invalid value: 90000: must be between 0 and 86400, inclusive`,
			},
		},
		"Globs": {
			reason: "* is the only pattern; other patterns would match nothing, without any notice.",
			spec:   everyPod + `{env: [{name: A}], containers: {include: ["", "*", "a*", "a?", "[ab]"], exclude: [A, "-a", "a-*"]}}`,
			want: []string{
				`spec.containers.include[0]: Required value: must be the name of a container, in which * may stand for any characters`,
				`spec.containers.include[3]: Invalid value: "a?": no container can have this name: want lower case letters, digits and -, and * for any of them`,
				`spec.containers.include[4]: Invalid value: "[ab]": no container can have this name: want lower case letters, digits and -, and * for any of them`,
				`spec.containers.exclude[0]: Invalid value: "A": no container can have this name: want lower case letters, digits and -, and * for any of them`,
				`spec.containers.exclude[1]: Invalid value: "-a": no container can have this name: want lower case letters, digits and -, and * for any of them`,
			},
		},
		"Env": {
			reason: "Items that an API server rejects in a container are rejected in the policy.",
			spec: everyPod + `
env:
- {value: x}
- {name: "A=B"}
- {name: Ä}
- {name: A, value: "\0"}
- {name: B, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: C, valueFrom: {}}
- {name: D, valueFrom: {fieldRef: {fieldPath: metadata.uid}, secretKeyRef: {name: a, key: b}}}
- {name: E, valueFrom: {secretKeyRef: {name: A, key: "a/b"}}}
- {name: F, valueFrom: {configMapKeyRef: {key: ""}}}
`,
			want: []string{
				`spec.env[0].name: Required value: must name the variable`,
				`spec.env[1].name: Invalid value: "A=B": a valid environment variable name must consist only of printable ASCII characters other than '='`,
				`spec.env[2].name: Invalid value: "Ä": a valid environment variable name must consist only of printable ASCII characters other than '='`,
				`spec.env[3].value: Invalid value: "\x00": a process cannot be given a NUL character`,
				`spec.env[4].valueFrom: Forbidden: value and valueFrom exclude each other: keep one of them`,
				`spec.env[5].valueFrom: Required value: must have one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef and fileKeyRef`,
				`spec.env[6].valueFrom: Forbidden: may not have more than one source: keep one of them`,
				`spec.env[7].valueFrom.secretKeyRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				`spec.env[7].valueFrom.secretKeyRef.key: Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
				`spec.env[8].valueFrom.configMapKeyRef.name: Required value: must name an object`,
				`spec.env[8].valueFrom.configMapKeyRef.key: Required value: must name a key of the object`,
			},
		},
		"FieldRefs": {
			reason: "A variable can refer to only a few fields.",
			spec: everyPod + `
env:
- {name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}
- {name: B, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a b']"}}}
- {name: C, valueFrom: {fieldRef: {fieldPath: "spec.nodeName['a']"}}}
- {name: D, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: metadata.name}}}
- {name: E, valueFrom: {fieldRef: {}}}
- {name: F, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}
- {name: G, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}}}
- {name: H, valueFrom: {resourceFieldRef: {}}}
- {name: I, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['A b']"}}}
- {name: J, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['Example.com/a']"}}}
`,
			want: []string{
				`spec.env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`,
				`spec.env[1].valueFrom.fieldRef.fieldPath: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				`spec.env[2].valueFrom.fieldRef.fieldPath: Invalid value: "spec.nodeName['a']": only metadata.labels and metadata.annotations have keys`,
				`spec.env[3].valueFrom.fieldRef.apiVersion: Unsupported value: "v2": supported values: "v1"`,
				`spec.env[4].valueFrom.fieldRef.fieldPath: Required value: must name a field of the pod`,
				`spec.env[5].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"`,
				`spec.env[6].valueFrom.resourceFieldRef.divisor: Unsupported value: "1Mi": supported values: "1m", "1"`,
				`spec.env[7].valueFrom.resourceFieldRef.resource: Required value: must name a resource of a container, such as limits.memory`,
				`spec.env[8].valueFrom.fieldRef.fieldPath: Invalid value: "A b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
		"FileKeyRefs": {
			reason: "An API server requires that the volume is an emptyDir, so the volume must be one of the policy.",
			spec: everyPod + `
env:
- {name: A, valueFrom: {fileKeyRef: {volumeName: files, path: ../a, key: A}}}
- {name: B, valueFrom: {fileKeyRef: {volumeName: other, path: a, key: "="}}}
volumes: [{name: files, secret: {secretName: x}}]
`,
			want: []string{
				`spec.env[0].valueFrom.fileKeyRef.path: Invalid value: "../a": must not contain '..'`,
				`spec.env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "files": must name an emptyDir among the volumes of the policy`,
				`spec.env[1].valueFrom.fileKeyRef.key: Invalid value: "=": a valid environment variable name must consist only of printable ASCII characters other than '='`,
				`spec.env[1].valueFrom.fileKeyRef.volumeName: Invalid value: "other": must name an emptyDir among the volumes of the policy`,
			},
		},
		"EnvFrom": {
			reason: "A source of variables is exactly one object.",
			spec: everyPod + `
envFrom:
- {}
- {secretRef: {name: a}, configMapRef: {name: a}}
- {secretRef: {name: ""}}
- {prefix: "a=", configMapRef: {name: a_b}}
`,
			want: []string{
				`spec.envFrom[0]: Required value: must have one of configMapRef and secretRef`,
				`spec.envFrom[1]: Forbidden: may not have both configMapRef and secretRef: make two items of it`,
				`spec.envFrom[2].secretRef.name: Required value: must name an object`,
				`spec.envFrom[3].prefix: Invalid value: "a=": a valid environment variable name must consist only of printable ASCII characters other than '='`,
				`spec.envFrom[3].configMapRef.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		"Mounts": {
			reason: "A mount must be valid in any container.",
			spec: everyPod + `
volumeMounts:
- {}
- {name: v, mountPath: "/a:b", subPath: /x}
- {name: v, mountPath: /..}
- {name: v, mountPath: /b, subPath: a, subPathExpr: ../b}
- {name: v, mountPath: /c, mountPropagation: Bidirectional}
- {name: v, mountPath: /d, mountPropagation: Twoway}
- {name: v, mountPath: /e, recursiveReadOnly: Enabled, mountPropagation: HostToContainer}
- {name: v, mountPath: /f, recursiveReadOnly: Sometimes, readOnly: true}
- {name: V, mountPath: /g, bindMountOptions: [noexec, noexec, exec]}
- {name: v, mountPath: "/h\0"}
- {name: v, mountPath: 'C:\data'}
`,
			want: []string{
				`spec.volumeMounts[0].name: Required value: must name a volume of the policy or of the pods`,
				`spec.volumeMounts[0].mountPath: Required value: must specify a path in the container`,
				`spec.volumeMounts[1].mountPath: Invalid value: "/a:b": must not contain ':'`,
				`spec.volumeMounts[1].subPath: Invalid value: "/x": must be a relative path`,
				`spec.volumeMounts[2].mountPath: Invalid value: "/..": nothing can be mounted in place of a container's root: choose a directory in it`,
				`spec.volumeMounts[3].subPathExpr: Invalid value: "../b": must not contain '..'`,
				`spec.volumeMounts[3].subPathExpr: Forbidden: subPath and subPathExpr exclude each other: keep one of them`,
				`spec.volumeMounts[4].mountPropagation: Forbidden: Bidirectional is only for privileged containers: use HostToContainer, or None`,
				`spec.volumeMounts[5].mountPropagation: Unsupported value: "Twoway": supported values: "None", "HostToContainer"`,
				`spec.volumeMounts[6].recursiveReadOnly: Forbidden: needs readOnly: true`,
				`spec.volumeMounts[6].recursiveReadOnly: Forbidden: needs mountPropagation None or no mountPropagation`,
				`spec.volumeMounts[7].recursiveReadOnly: Unsupported value: "Sometimes": supported values: "Disabled", "IfPossible", "Enabled"`,
				`spec.volumeMounts[8].name: Invalid value: "V": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
				`spec.volumeMounts[8].bindMountOptions[1]: Duplicate value: "noexec"`,
				`spec.volumeMounts[8].bindMountOptions[2]: Unsupported value: "exec": supported values: "nodev", "noexec", "nosuid"`,
				`spec.volumeMounts[8].bindMountOptions: Forbidden: needs a volume of the policy other than an image`,
				`spec.volumeMounts[9].mountPath: Invalid value: "/h\x00": must not contain a NUL character`,
			},
		},
		"Duplicates": {
			reason: "Two items of the same identity would conflict with each other in every pod.",
			spec: everyPod + `
env: [{name: A, value: x}, {name: B}, {name: A, value: x}]
envFrom: [{secretRef: {name: a}}, {prefix: P_, secretRef: {name: a}}, {configMapRef: {name: a}}, {secretRef: {name: a, optional: true}}]
volumes: [{name: v, emptyDir: {}}, {name: v, secret: {secretName: s}}]
volumeMounts: [{name: v, mountPath: /opt}, {name: v, mountPath: /opt/}]
`,
			want: []string{
				`spec.env[2].name: Duplicate value: "A": is already at spec.env[0]: remove one of them`,
				`spec.envFrom[3]: Duplicate value: ":Secret/a": is already at spec.envFrom[0]: remove one of them`,
				`spec.volumes[1].name: Duplicate value: "v": is already at spec.volumes[0]: remove one of them`,
				`spec.volumeMounts[1].mountPath: Duplicate value: "/opt": is already at spec.volumeMounts[0]: remove one of them`,
			},
		},
		"OneByteTooMuch": {
			reason: "One byte above the limit is rejected.",
			spec:   everyPod + `{env: [{name: A, value: "` + strings.Repeat("x", maxInjected-len(`{"name":"A","value":""}`)+1) + `"}]}`,
			want: []string{
				`spec: Too long: env, envFrom, volumes and volumeMounts are 262145 bytes together, and may not be more than 262144: move large values to a ConfigMap or a Secret`,
			},
		},
		"TooMuch": {
			reason: "The limit is for the whole policy, because every container of every pod gets the items.",
			spec:   everyPod + `{env: [{name: A, value: "` + strings.Repeat("x", 200<<10) + `"}, {name: B, value: "` + strings.Repeat("x", 60<<10) + `"}]}`,
			want: []string{
				`spec: Too long: env, envFrom, volumes and volumeMounts are 266286 bytes together, and may not be more than 262144: move large values to a ConfigMap or a Secret`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, inline(tc.spec))
			before := p.DeepCopy()
			got, errs := Compile(p)
			if got != nil {
				t.Errorf("%s\nThere must be no policy.", tc.reason)
			}
			if diff := cmp.Diff(tc.want, spelled(errs)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("Compile must not modify its argument: -before, +after:\n%s", diff)
			}
		})
	}
}

// TestCompileTooMuch: the memory for the errors of a large policy is bounded. Lists that are too long are rejected
// without an allocation for each element.
func TestCompileTooMuch(t *testing.T) {
	policy := func(env, files int) *refractv1beta1.ServiceInjectionPolicy {
		p := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
		p.Spec.Selector = &metav1.LabelSelector{}
		p.Spec.Env = make([]refractv1beta1.EnvVar, env)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "a", Items: make([]corev1.KeyToPath, files),
		}}}}
		return p
	}
	if _, errs := Compile(policy(mostEnv+1, 0)); len(errs) != 1 || errs[0].Field != "spec.env" {
		t.Errorf("want the list refused that is too long, got %d mistakes", len(errs))
	}
	for name, p := range map[string]*refractv1beta1.ServiceInjectionPolicy{"Env": policy(mostEnv, 0), "Files": policy(0, 100_000)} {
		if _, errs := Compile(p); len(errs) < mostMistakes || len(errs) > mostMistakes+10 {
			t.Errorf("%s: want some %d mistakes, got %d", name, mostMistakes, len(errs))
		}
	}
}

// inline merges a spec in braces into the preceding line.
func inline(spec string) string {
	rest, found := strings.CutPrefix(spec, everyPod+"{")
	if !found {
		return spec
	}
	return "{selector: {matchLabels: {role: frontend}}, " + rest
}

func TestCompileNames(t *testing.T) {
	long := strings.Repeat("a", 253)
	cases := map[string]struct {
		reason string
		meta   metav1.ObjectMeta
		want   []string
	}{
		"Long":     {"A name of 253 characters is valid, although it cannot be part of an annotation's key.", metav1.ObjectMeta{Name: long}, nil},
		"TooLong":  {"A longer name is invalid for any object.", metav1.ObjectMeta{Name: long + "a"}, []string{"metadata.name: Invalid value"}},
		"Comma":    {"A name with a comma would count as two names in the annotation of a pod.", metav1.ObjectMeta{Name: "a,b"}, []string{"metadata.name: Invalid value"}},
		"None":     {"A policy needs a name.", metav1.ObjectMeta{}, []string{"metadata.name: Required value"}},
		"Generate": {"The API server generates the name.", metav1.ObjectMeta{GenerateName: "a-"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, `{selector: {}, env: [{name: A}]}`)
			p.ObjectMeta = tc.meta
			_, errs := Compile(p)
			if diff := cmp.Diff(tc.want, places(errs)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCompileVolumes(t *testing.T) {
	cases := map[string]struct {
		volume string
		want   []string // Fields, relative to spec.volumes[0], and types of the errors.
	}{
		"None":               {`{}`, []string{": Required value"}},
		"Two":                {`{emptyDir: {}, secret: {secretName: s}}`, []string{".secret: Forbidden"}},
		"EmptyDir":           {`{emptyDir: {medium: Memory, sizeLimit: 1Gi, mode: 1023}}`, nil},
		"EmptyDirBad":        {`{emptyDir: {sizeLimit: -1, mode: 1024}}`, []string{".emptyDir.sizeLimit: Invalid value", ".emptyDir.mode: Invalid value"}},
		"Secret":             {`{secret: {secretName: s, defaultMode: 0, items: [{key: a, path: b/c, mode: 511}]}}`, nil},
		"SecretBad":          {`{secret: {secretName: "", defaultMode: 512, defaultUser: -1, items: [{key: "", path: ../b}, {key: a, path: ..b, mode: -1}, {key: a, path: /b, user: -2}]}}`, []string{".secret.secretName: Required value", ".secret.defaultMode: Invalid value", ".secret.defaultUser: Invalid value", ".secret.items[0].key: Required value", ".secret.items[0].path: Invalid value", ".secret.items[1].path: Invalid value", ".secret.items[1].mode: Invalid value", ".secret.items[2].path: Invalid value", ".secret.items[2].user: Invalid value"}},
		"ConfigMap":          {`{configMap: {name: c}}`, nil},
		"ConfigMapBad":       {`{configMap: {name: C, items: [{key: a}]}}`, []string{".configMap.name: Invalid value", ".configMap.items[0].path: Required value"}},
		"Claim":              {`{persistentVolumeClaim: {claimName: c}}`, nil},
		"ClaimBad":           {`{persistentVolumeClaim: {}}`, []string{".persistentVolumeClaim.claimName: Required value"}},
		"DownwardAPI":        {`{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}, {path: b, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1Mi}}]}}`, nil},
		"DownwardAPIBad":     {`{downwardAPI: {items: [{path: "", fieldRef: {fieldPath: spec.nodeName}}, {path: b, resourceFieldRef: {resource: limits.memory}}, {path: c}, {path: d, fieldRef: {fieldPath: metadata.uid}, resourceFieldRef: {}}]}}`, []string{".downwardAPI.items[0].path: Required value", ".downwardAPI.items[0].fieldRef.fieldPath: Unsupported value", ".downwardAPI.items[1].resourceFieldRef.containerName: Required value", ".downwardAPI.items[2]: Required value", ".downwardAPI.items[3]: Forbidden"}},
		"Projected":          {`{projected: {sources: [{secret: {name: s, items: [{key: a, path: a}]}}, {configMap: {name: c}}, {downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}, {serviceAccountToken: {path: token}}, {clusterTrustBundle: {name: "example.com:signer:b", path: ca}}, {clusterTrustBundle: {signerName: example.com/signer, labelSelector: {}, path: cas}}, {podCertificate: {signerName: example.com/signer, keyType: ED25519, credentialBundlePath: bundle, maxExpirationSeconds: 3600}}]}}`, nil},
		"ProjectedBad":       {`{projected: {sources: [{}, {secret: {}, configMap: {name: c}}, {secret: {name: a, items: [{key: k, path: p}]}}, {configMap: {name: a, items: [{key: k, path: p}]}}, {serviceAccountToken: {path: /token, expirationSeconds: 10}}]}}`, []string{".projected.sources[0]: Required value", ".projected.sources[1].secret.name: Required value", ".projected.sources[1]: Forbidden", ".projected.sources[3].configMap.items[0].path: Duplicate value", ".projected.sources[4].serviceAccountToken.path: Invalid value", ".projected.sources[4].serviceAccountToken.expirationSeconds: Invalid value"}},
		"TrustBundleBad":     {`{projected: {sources: [{clusterTrustBundle: {path: a}}, {clusterTrustBundle: {name: b, signerName: c, path: b}}, {clusterTrustBundle: {name: "A", labelSelector: {}, path: c}}, {clusterTrustBundle: {signerName: nodomain, path: ""}}]}}`, []string{".projected.sources[0].clusterTrustBundle: Required value", ".projected.sources[1].clusterTrustBundle: Forbidden", ".projected.sources[2].clusterTrustBundle.name: Invalid value", ".projected.sources[2].clusterTrustBundle.labelSelector: Forbidden", ".projected.sources[3].clusterTrustBundle.signerName: Invalid value", ".projected.sources[3].clusterTrustBundle.path: Required value"}},
		"PodCertificateBad":  {`{projected: {sources: [{podCertificate: {signerName: kubernetes.io/x, keyType: RSA, maxExpirationSeconds: 86401, userAnnotations: {a: b}}}]}}`, []string{".projected.sources[0].podCertificate.keyType: Unsupported value", ".projected.sources[0].podCertificate.maxExpirationSeconds: Invalid value", ".projected.sources[0].podCertificate.userAnnotations: Invalid value", ".projected.sources[0].podCertificate: Required value"}},
		"CSI":                {`{csi: {driver: Secrets.example.com, nodePublishSecretRef: {name: s}}}`, nil},
		"CSIBad":             {`{csi: {nodePublishSecretRef: {}}}`, []string{".csi.nodePublishSecretRef.name: Required value", ".csi.driver: Required value"}},
		"CSILong":            {`{csi: {driver: ` + strings.Repeat("a", 64) + `}}`, []string{".csi.driver: Too long"}},
		"CSIName":            {`{csi: {driver: a_b}}`, []string{".csi.driver: Invalid value"}},
		"SignerLong":         {`{projected: {sources: [{podCertificate: {signerName: example.com/` + strings.TrimSuffix(strings.Repeat("a.", 160), ".") + `, keyType: RSA3072, keyPath: k}}]}}`, []string{".projected.sources[0].podCertificate.signerName: Too long"}},
		"AnnotationsLong":    {`{projected: {sources: [{podCertificate: {signerName: example.com/a, keyType: RSA3072, keyPath: k, userAnnotations: {example.com/a: ` + strings.Repeat("a", 256<<10) + `}}}]}}`, []string{".projected.sources[0].podCertificate.userAnnotations: Too long"}},
		"Ephemeral":          {`{ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}`, nil},
		"EphemeralBad":       {`{ephemeral: {volumeClaimTemplate: {metadata: {name: x}, spec: {accessModes: [ReadWriteOncePod, Any], volumeMode: Tape, storageClassName: A, dataSource: {kind: Foo, name: x}}}}}`, []string{".ephemeral.volumeClaimTemplate.metadata: Forbidden", ".ephemeral.volumeClaimTemplate.spec.accessModes[1]: Unsupported value", ".ephemeral.volumeClaimTemplate.spec.accessModes: Forbidden", ".ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: Required value", ".ephemeral.volumeClaimTemplate.spec.storageClassName: Invalid value", ".ephemeral.volumeClaimTemplate.spec.volumeMode: Unsupported value", ".ephemeral.volumeClaimTemplate.spec.dataSource.kind: Invalid value"}},
		"EphemeralNone":      {`{ephemeral: {}}`, []string{".ephemeral.volumeClaimTemplate: Required value"}},
		"EphemeralSources":   {`{ephemeral: {volumeClaimTemplate: {spec: {accessModes: [], resources: {requests: {storage: 0}}, dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef: {apiGroup: a_b, kind: X, name: b, namespace: "N"}}}}}`, []string{".ephemeral.volumeClaimTemplate.spec.accessModes: Required value", ".ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: Invalid value", ".ephemeral.volumeClaimTemplate.spec.dataSourceRef.apiGroup: Invalid value", ".ephemeral.volumeClaimTemplate.spec.dataSourceRef.namespace: Invalid value", ".ephemeral.volumeClaimTemplate.spec.dataSource: Forbidden"}},
		"Image":              {`{image: {reference: example.com/a:1}}`, nil},
		"ImageBad":           {`{image: {pullPolicy: Sometimes}}`, []string{".image.reference: Required value", ".image.pullPolicy: Unsupported value"}},
		"ImageNames":         {`{image: {reference: "Registry.example.com:5000/a/b__c@sha256:` + strings.Repeat("0a", 32) + `"}}`, nil},
		"ImageNoName":        {`{image: {reference: "A"}}`, []string{".image.reference: Invalid value"}},
		"ImageIdentifier":    {`{image: {reference: "` + strings.Repeat("a", 64) + `"}}`, []string{".image.reference: Invalid value"}},
		"HostPath":           {`{hostPath: {path: /var/log, type: Directory}}`, nil},
		"HostPathBad":        {`{hostPath: {path: /a/../b, type: Folder}}`, []string{".hostPath.path: Invalid value", ".hostPath.type: Unsupported value"}},
		"NFS":                {`{nfs: {server: a, path: b}}`, []string{".nfs.path: Invalid value"}},
		"ISCSI":              {`{iscsi: {targetPortal: "10.0.0.1", iqn: "iqn.2026-01.com.example:a", lun: 1}}`, nil},
		"ISCSIBad":           {`{iscsi: {targetPortal: "` + strings.Repeat("a", 64) + `", iqn: x, lun: 256, chapAuthSession: true, initiatorName: z}}`, []string{".iscsi.iqn: Invalid value", ".iscsi.initiatorName: Invalid value", ".iscsi.secretRef: Required value", ".iscsi.lun: Invalid value", ".name: Invalid value"}},
		"FC":                 {`{fc: {targetWWNs: [a]}}`, []string{".fc.lun: Required value"}},
		"FCNone":             {`{fc: {}}`, []string{".fc.targetWWNs: Required value"}},
		"FCBoth":             {`{fc: {targetWWNs: [a], wwids: [b]}}`, []string{".fc.targetWWNs: Forbidden"}},
		"GitRepo":            {`{gitRepo: {directory: ..}}`, []string{".gitRepo.repository: Required value", ".gitRepo.directory: Invalid value"}},
		"GCE":                {`{gcePersistentDisk: {partition: 256}}`, []string{".gcePersistentDisk.pdName: Required value", ".gcePersistentDisk.partition: Invalid value"}},
		"AWS":                {`{awsElasticBlockStore: {}}`, []string{".awsElasticBlockStore.volumeID: Required value"}},
		"AzureFile":          {`{azureFile: {}}`, []string{".azureFile.secretName: Required value", ".azureFile.shareName: Required value"}},
		"AzureDisk":          {`{azureDisk: {diskName: d, diskURI: /subscriptions/x}}`, []string{".azureDisk.diskURI: Invalid value"}},
		"AzureDiskManaged":   {`{azureDisk: {diskName: d, diskURI: /subscriptions/x, kind: Managed}}`, nil},
		"AzureDiskBad":       {`{azureDisk: {kind: Floppy, cachingMode: Some}}`, []string{".azureDisk.diskName: Required value", ".azureDisk.diskURI: Required value", ".azureDisk.cachingMode: Unsupported value", ".azureDisk.kind: Unsupported value"}},
		"VSphere":            {`{vsphereVolume: {}}`, []string{".vsphereVolume.volumePath: Required value"}},
		"Cinder":             {`{cinder: {secretRef: {}}}`, []string{".cinder.volumeID: Required value", ".cinder.secretRef.name: Required value"}},
		"CephFS":             {`{cephfs: {}}`, []string{".cephfs.monitors: Required value"}},
		"RBD":                {`{rbd: {}}`, []string{".rbd.monitors: Required value", ".rbd.image: Required value"}},
		"Glusterfs":          {`{glusterfs: {}}`, []string{".glusterfs.endpoints: Required value", ".glusterfs.path: Required value"}},
		"Flex":               {`{flexVolume: {options: {k8s.io/x: z, x.KUBERNETES.IO/a: b, c: d}}}`, []string{".flexVolume.driver: Required value", ".flexVolume.options[k8s.io/x]: Invalid value", ".flexVolume.options[x.KUBERNETES.IO/a]: Invalid value"}},
		"FlockerNone":        {`{flocker: {}}`, []string{".flocker: Required value"}},
		"FlockerBoth":        {`{flocker: {datasetName: a, datasetUUID: b}}`, []string{".flocker: Forbidden"}},
		"FlockerSlash":       {`{flocker: {datasetName: a/b}}`, []string{".flocker.datasetName: Invalid value"}},
		"Quobyte":            {`{quobyte: {registry: "a:1,[::1]:2", volume: v}}`, nil},
		"QuobyteBad":         {`{quobyte: {registry: "a", tenant: ` + strings.Repeat("a", 65) + `}}`, []string{".quobyte.volume: Required value", ".quobyte.tenant: Too long", ".quobyte.registry: Invalid value"}},
		"Photon":             {`{photonPersistentDisk: {}}`, []string{".photonPersistentDisk.pdID: Required value"}},
		"Portworx":           {`{portworxVolume: {}}`, []string{".portworxVolume.volumeID: Required value"}},
		"ScaleIO":            {`{scaleIO: {}}`, []string{".scaleIO.gateway: Required value", ".scaleIO.system: Required value", ".scaleIO.volumeName: Required value"}},
		"StorageOS":          {`{storageos: {volumeNamespace: "N"}}`, []string{".storageos.volumeName: Required value", ".storageos.volumeNamespace: Invalid value"}},
		"NotAName":           {`{name: Data, emptyDir: {}}`, []string{".name: Invalid value"}},
		"NoName":             {`{name: "", emptyDir: {}}`, []string{".name: Required value"}},
		"LongestMaxDuration": {`{projected: {sources: [{podCertificate: {signerName: example.com/a, keyType: RSA3072, keyPath: k, certificateChainPath: k, maxExpirationSeconds: 7862400}}]}}`, []string{".projected.sources[0].podCertificate.certificateChainPath: Duplicate value"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, `{selector: {}, volumes: [{name: v}]}`)
			if err := yaml.UnmarshalStrict([]byte(tc.volume), &p.Spec.Volumes[0]); err != nil {
				t.Fatal(err)
			}
			_, errs := Compile(p)
			var want []string
			for _, w := range tc.want {
				want = append(want, "spec.volumes[0]"+w)
			}
			if diff := cmp.Diff(want, places(errs)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s\n%v", tc.volume, diff, errs)
			}
		})
	}
}

// TestVolumeSourcesAreAll fails if Kubernetes has a type of volume that this package does not know.
func TestVolumeSourcesAreAll(t *testing.T) {
	var known []string
	for _, s := range volumeSources {
		known = append(known, s.name)
	}
	slices.Sort(known)
	if diff := cmp.Diff(jsonNames[corev1.VolumeSource](), known); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestWarnings(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   []string
	}{
		"None": {
			reason: "The example of the proposal has no warnings.",
			spec:   everyPod + "service: db\nenv: [{name: DB_PORT, value: 6379}]\nvolumes: [{name: v, emptyDir: {}}]\nvolumeMounts: [{name: v, mountPath: /cache}]\n",
		},
		"EveryPod": {
			reason: "An empty selector {} may be unintended.",
			spec:   `{selector: {}, env: [{name: A}]}`,
			want:   []string{"spec.selector: selects every pod of the namespace"},
		},
		"Volumes": {
			reason: "A volume without a mount, or a mount without a volume, is often a typing mistake.",
			spec:   everyPod + "volumes: [{name: a, emptyDir: {}}]\nvolumeMounts: [{name: b, mountPath: b}]\n",
			want: []string{
				"spec.volumes[0].name: no mount of the policy uses this volume: only containers with a mount of their own can use it",
				"spec.volumeMounts[0].name: the policy has no such volume: pods without a volume of this name are left out",
				"spec.volumeMounts[0].mountPath: has no leading /: it is relative to the root of a container",
			},
		},
		"PodSecurity": {
			reason: "Some items make pods fail in some namespaces, which only a warning can report.",
			spec:   everyPod + "volumes: [{name: a, hostPath: {path: /a}}, {name: b, nfs: {server: s, path: /}}]\nvolumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]\n",
			want: []string{
				"spec.volumes[0].hostPath: a namespace that enforces the Pod Security level baseline or restricted refuses pods with this type of volume",
				"spec.volumes[1].nfs: a namespace that enforces the Pod Security level restricted refuses pods with this type of volume",
			},
		},
		"Versions": {
			reason: "An older API server drops unknown fields, and rejects other items.",
			spec:   everyPod + "env: [{name: 1 A}, {name: B, valueFrom: {fileKeyRef: {volumeName: f, path: p, key: K}}}]\nvolumes: [{name: f, emptyDir: {mode: 511}}, {name: i, image: {reference: a}}]\nvolumeMounts: [{name: i, mountPath: /i}, {name: f, mountPath: /f, bindMountOptions: [noexec]}]\n",
			want: []string{
				"spec.env[0].name: API servers before Kubernetes 1.32 refuse pods with a variable of this name",
				"spec.env[1].valueFrom.fileKeyRef: API servers before Kubernetes 1.35 do not know this field, and refuse the pods",
				"spec.volumes[0].emptyDir.mode: API servers without the feature gate EmptyDirVolumeMode drop this",
				"spec.volumes[1].image: API servers before Kubernetes 1.35 know this type of volume only if it is enabled, and otherwise refuse pods with it",
				"spec.volumeMounts[1].bindMountOptions: API servers without the feature gate VolumeBindMountOptions drop this",
			},
		},
		"Mounts": {
			reason: "Some conflicts between mounts are foreseeable.",
			spec:   everyPod + "containers: {ephemeralContainers: true}\nvolumes: [{name: a, emptyDir: {}}]\nvolumeMounts: [{name: a, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, subPath: x}]\n",
			want: []string{
				"spec.volumeMounts[0].mountPath: most pods have the token of their ServiceAccount there: they are left out",
				"spec.volumeMounts[0]: ephemeral containers cannot have a subPath: they are left out",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range compiled(t, tc.spec).Warnings() {
				got = append(got, w.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHash: the hash covers the injected content and its place, and does not depend on the notation.
func TestHash(t *testing.T) {
	base := `
selector: {}
env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
envFrom: [{secretRef: {name: s}}]
volumes: [{name: v, secret: {secretName: s}}, {name: e, emptyDir: {sizeLimit: 1Gi}}]
volumeMounts: [{name: v, mountPath: /v}]
`
	same := map[string]string{
		"Defaults": `
selector: {}
env: [{name: A, value: "1"}, {name: B, value: "", valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]
envFrom: [{prefix: "", secretRef: {name: s, optional: false}}]
volumes: [{name: v, secret: {secretName: s, defaultMode: 420, optional: false}}, {name: e, emptyDir: {medium: "", sizeLimit: 1024Mi}}]
volumeMounts: [{name: v, mountPath: /v, readOnly: false, mountPropagation: None}]
containers: {include: [], exclude: [], initContainers: true, ephemeralContainers: false}
envPosition: Append
onConflict: Skip
mode: Enforce
rollout: {strategy: Rolling, maxConcurrent: 2, minReadySeconds: 0}
`,
		"Number":   strings.Replace(base, `"1"`, `1`, 1),
		"Star":     base + `containers: {include: [a, "*"]}`,
		"Selector": strings.Replace(base, `{}`, `{matchLabels: {a: b}}`, 1),
		"Service":  base + `service: db`,
		"Mode":     base + "mode: Audit\nonConflict: Reject\nrollout: {strategy: None}\n",
	}
	different := map[string]string{
		"Value":      strings.Replace(base, `"1"`, `"2"`, 1),
		"Order":      strings.Replace(base, `{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}`, `{name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: A, value: "1"}`, 1),
		"Mode":       strings.Replace(base, `secretName: s`, `secretName: s, defaultMode: 0`, 1),
		"Optional":   strings.Replace(base, `secretRef: {name: s}`, `secretRef: {name: s, optional: true}`, 1),
		"Prepend":    base + `envPosition: Prepend`,
		"Init":       base + `containers: {initContainers: false}`,
		"Include":    base + `containers: {include: [a]}`,
		"Exclude":    base + `containers: {exclude: [a]}`,
		"NoEmptyDir": strings.Replace(base, `, {name: e, emptyDir: {sizeLimit: 1Gi}}`, ``, 1),
	}
	want := compiled(t, base).Hash()
	if len(want) != 16 {
		t.Errorf("want 16 digits, got %q", want)
	}
	for name, spec := range same {
		if got := compiled(t, spec).Hash(); got != want {
			t.Errorf("%s: want the same hash", name)
		}
	}
	hashes := map[string]string{want: "the first"}
	for name, spec := range different {
		got := compiled(t, spec).Hash()
		if other, taken := hashes[got]; taken {
			t.Errorf("%s has the hash of %s", name, other)
		}
		hashes[got] = name
	}
}

func TestCompare(t *testing.T) {
	at := func(seconds int64, name string) *Policy {
		p := policyOf(t, `{selector: {}, env: [{name: A}]}`)
		p.Name = name
		if seconds > 0 {
			p.CreationTimestamp = metav1.Unix(seconds, 0)
		}
		c, errs := Compile(p)
		if errs != nil {
			t.Fatal(errs)
		}
		return c
	}
	policies := []*Policy{at(2, "a"), at(1, "c"), at(0, "z"), at(1, "b")}
	slices.SortFunc(policies, Compare)
	var got []string
	for _, p := range policies {
		got = append(got, p.Name())
	}
	if diff := cmp.Diff([]string{"z", "b", "c", "a"}, got); diff != "" {
		t.Errorf("the oldest first, then by name: -want, +got:\n%s", diff)
	}
}

func TestScope(t *testing.T) {
	cases := map[string]struct {
		scope scope
		name  string
		part  containerPart
		want  bool
	}{
		"All":            {scope{init: true}, "a", containersPart, true},
		"Init":           {scope{init: true}, "a", initContainersPart, true},
		"NoInit":         {scope{}, "a", initContainersPart, false},
		"NoEphemeral":    {scope{init: true}, "a", ephemeralContainersPart, false},
		"Ephemeral":      {scope{ephemeral: true}, "a", ephemeralContainersPart, true},
		"Included":       {scope{include: []string{"b", "a"}}, "a", containersPart, true},
		"NotIncluded":    {scope{include: []string{"b"}}, "a", containersPart, false},
		"Excluded":       {scope{exclude: []string{"a"}}, "a", containersPart, false},
		"ExcludedByGlob": {scope{include: []string{"istio-*"}, exclude: []string{"*-proxy"}}, "istio-proxy", containersPart, false},
		"LeftByGlob":     {scope{include: []string{"istio-*"}, exclude: []string{"*-proxy"}}, "istio-init", containersPart, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.scope.chooses(tc.name, tc.part); got != tc.want {
				t.Errorf("want %t, got %t", tc.want, got)
			}
		})
	}
}

func TestGlob(t *testing.T) {
	cases := []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "abc", true}, {"**", "a", true},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"a*a", "a", false}, {"a*a", "aa", true},
		{"a*b*c", "abc", true}, {"a*b*c", "axbxxc", true}, {"a*b*c", "acb", false}, {"*ab*ab", "ab", false}, {"*ab*ab", "aabab", true},
		{"a.c", "abc", false}, {"[a]", "a", false},
	}
	for _, tc := range cases {
		if got := glob(tc.pattern, tc.name); got != tc.want {
			t.Errorf("%q and %q: want %t", tc.pattern, tc.name, tc.want)
		}
	}
}

// TestImmutable: a caller may modify the slices that a policy returns.
func TestImmutable(t *testing.T) {
	p := compiled(t, `{selector: {}, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}`)
	refs, warnings := p.References(), p.Warnings()
	refs[0].Name, refs[0].Keys[0], warnings[0].Path = "x", "x", "x"
	if diff := cmp.Diff([]Reference{{Kind: "Secret", Name: "s", Keys: []string{"k"}, Path: "spec.env[0].valueFrom.secretKeyRef.name"}}, p.References()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff("spec.selector", p.Warnings()[0].Path, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func BenchmarkCompile(b *testing.B) {
	p := policyOf(b, `
service: db
selector: {matchLabels: {role: frontend}}
env: [{name: DB_PORT, value: 6379}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
envFrom: [{secretRef: {name: db-cred}}]
volumes: [{name: cache-volume, emptyDir: {}}]
volumeMounts: [{mountPath: /cache, name: cache-volume}]
`)
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := Compile(p); errs != nil {
			b.Fatal(errs)
		}
	}
}
