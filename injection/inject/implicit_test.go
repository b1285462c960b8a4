package inject

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// serviceOf returns the Service myns/db with these annotations and ports.
func serviceOf(annotations map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}
	s.Namespace, s.Name, s.Annotations = "myns", "db", annotations
	return s
}

func TestFromService(t *testing.T) {
	redis := corev1.ServicePort{Port: 6379}
	web, admin := corev1.ServicePort{Name: "web", Port: 80}, corev1.ServicePort{Name: "admin-ui", Port: 8080}
	cases := map[string]struct {
		reason  string
		service *corev1.Service
		want    string
		errs    []string
	}{
		"None": {
			reason:  "A Service without annotations has no items.",
			service: serviceOf(nil, redis),
			want:    `{}`,
		},
		"Page": {
			reason: "The annotations of the design page have these items.",
			service: serviceOf(map[string]string{
				"refract.dev/env":      `{"DB_NAME":"orders","DB_POOL":10,"DB_URL":"redis://$(DB_HOST):$(DB_PORT)"}`,
				"refract.dev/env-from": "secret/db-cred,configmap/db-conf",
				"refract.dev/mount":    "secret/db-tls:/etc/db/tls:ro",
				"refract.dev/prefix":   "DB_",
				"refract.dev/derive":   "host,port",
			}, redis),
			want: `
env:
- {name: DB_HOST, value: db.myns.svc}
- {name: DB_PORT, value: "6379"}
- {name: DB_NAME, value: orders}
- {name: DB_POOL, value: "10"}
- {name: DB_URL, value: "redis://$(DB_HOST):$(DB_PORT)"}
envFrom: [{secretRef: {name: db-cred}}, {configMapRef: {name: db-conf}}]
volumes: [{name: svc-secret-db-tls, secret: {secretName: db-tls}}]
volumeMounts: [{name: svc-secret-db-tls, mountPath: /etc/db/tls, readOnly: true}]
`,
		},
		"Ports": {
			reason:  "PORT is the first port, so that a port that is added later does not change it. Each named port has its own variable.",
			service: serviceOf(map[string]string{"refract.dev/derive": " port , port"}, web, admin),
			want:    `env: [{name: PORT, value: "80"}, {name: WEB_PORT, value: "80"}, {name: ADMIN_UI_PORT, value: "8080"}]`,
		},
		"OnePortWithName": {
			reason:  "The rule for several ports also applies to a single port.",
			service: serviceOf(map[string]string{"refract.dev/derive": "port", "refract.dev/prefix": "X_"}, web),
			want:    `env: [{name: X_PORT, value: "80"}, {name: X_WEB_PORT, value: "80"}]`,
		},
		"GivenWins": {
			reason:  "A variable in an annotation replaces a derived variable.",
			service: serviceOf(map[string]string{"refract.dev/derive": "host,port", "refract.dev/env": `{"HOST":"proxy"}`}, redis),
			want:    `env: [{name: PORT, value: "6379"}, {name: HOST, value: proxy}]`,
		},
		"Mounts": {
			reason: "One object is one volume, wherever it is mounted. A name that is not a DNS label gets a hash.",
			service: serviceOf(map[string]string{
				"refract.dev/mount": "configmap/a:/a, configmap/a:/b:ro, secret/a.b:/c, secret/" + strings.Repeat("a", 60) + ":/d,",
			}),
			want: `
volumes:
- {name: svc-configmap-a, configMap: {name: a}}
- {name: svc-d73e8daddc-a-b, secret: {secretName: a.b}}
- {name: svc-9bb07d847a-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, secret: {secretName: ` + strings.Repeat("a", 60) + `}}
volumeMounts:
- {name: svc-configmap-a, mountPath: /a}
- {name: svc-configmap-a, mountPath: /b, readOnly: true}
- {name: svc-d73e8daddc-a-b, mountPath: /c}
- {name: svc-9bb07d847a-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, mountPath: /d}
`,
		},
		"BadEnv": {
			reason: "An invalid annotation does not affect the others.",
			service: serviceOf(map[string]string{
				"refract.dev/env":    `{"A":"b"`,
				"refract.dev/derive": "host",
			}),
			want: `env: [{name: HOST, value: db.myns.svc}]`,
			errs: []string{`metadata.annotations[refract.dev/env]: Invalid value: "{\"A\":\"b\"": unexpected EOF; want a JSON object such as {"DB_NAME":"orders"}`},
		},
		"BadValues": {
			reason:  "The values of variables must be strings or numbers.",
			service: serviceOf(map[string]string{"refract.dev/env": `{"A":true}`}),
			want:    `{}`,
			errs:    []string{`metadata.annotations[refract.dev/env]: Invalid value: "{\"A\":true}": the value of "A" must be a string or a number; want a JSON object such as {"DB_NAME":"orders"}`},
		},
		"NoObject": {
			reason:  "The variables must be an object, because elements of a list have no names.",
			service: serviceOf(map[string]string{"refract.dev/env": `["A"]`}),
			want:    `{}`,
			errs:    []string{`metadata.annotations[refract.dev/env]: Invalid value: "[\"A\"]": want {, got [; want a JSON object such as {"DB_NAME":"orders"}`},
		},
		"BehindObject": {
			reason:  "Text after the object would be lost, so it is an error.",
			service: serviceOf(map[string]string{"refract.dev/env": `{} {"A":"b"}`}),
			want:    `{}`,
			errs:    []string{`metadata.annotations[refract.dev/env]: Invalid value: "{} {\"A\":\"b\"}": unexpected data after the object; want a JSON object such as {"DB_NAME":"orders"}`},
		},
		"BadNames": {
			reason:  "An invalid variable does not affect the others.",
			service: serviceOf(map[string]string{"refract.dev/env": `{"":"a","A=":"b","B":"\u0000","C":"c","C":"d","D":1.5e3}`}),
			want:    `env: [{name: C, value: c}, {name: D, value: "1.5e3"}]`,
			errs: []string{
				`metadata.annotations[refract.dev/env]: Invalid value: "": environment variable name must be non-empty`,
				`metadata.annotations[refract.dev/env]: Invalid value: "A=": a valid environment variable name must consist only of printable ASCII characters other than '='`,
				`metadata.annotations[refract.dev/env]: Invalid value: "B": a process cannot be given a NUL character`,
				`metadata.annotations[refract.dev/env]: Invalid value: "C": is a duplicate: remove one of them`,
			},
		},
		"BadDerive": {
			reason:  "A Service without ports has no derived variables for ports.",
			service: serviceOf(map[string]string{"refract.dev/derive": "host,port,user"}),
			want:    `env: [{name: HOST, value: db.myns.svc}]`,
			errs: []string{
				`metadata.annotations[refract.dev/derive]: Invalid value: "port": the Service has no port`,
				`metadata.annotations[refract.dev/derive]: Unsupported value: "user": supported values: "host", "port"`,
			},
		},
		"BadPrefix": {
			reason:  "Without a prefix, derived variables would have unexpected names.",
			service: serviceOf(map[string]string{"refract.dev/derive": "host", "refract.dev/prefix": "D=", "refract.dev/env": `{"A":"a"}`}),
			want:    `env: [{name: A, value: a}]`,
			errs:    []string{`metadata.annotations[refract.dev/prefix]: Invalid value: "D=": a valid environment variable name must consist only of printable ASCII characters other than '='`},
		},
		"BadPort": {
			reason:  "A Service in a file may have any names, also invalid ones.",
			service: serviceOf(map[string]string{"refract.dev/derive": "port"}, corev1.ServicePort{Name: "=", Port: 1}),
			want:    `env: [{name: PORT, value: "1"}]`,
			errs:    []string{`spec.ports[0].name: Invalid value: "=": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`},
		},
		"BadEnvFrom": {
			reason:  "The valid items are used.",
			service: serviceOf(map[string]string{"refract.dev/env-from": "db, secret/a, secret/, secret/a"}),
			want:    `envFrom: [{secretRef: {name: a}}]`,
			errs: []string{
				`metadata.annotations[refract.dev/env-from]: Invalid value: "db": want secret/NAME or configmap/NAME, got "db"`,
				`metadata.annotations[refract.dev/env-from]: Invalid value: "secret/": "" is not the name of a Secret: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				`metadata.annotations[refract.dev/env-from]: Invalid value: "secret/a": is a duplicate: remove one of them`,
			},
		},
		"BadMount": {
			reason:  "The valid items are used.",
			service: serviceOf(map[string]string{"refract.dev/mount": "secret/a, secret/a:/a:rw, secret/a:b, secret/a:/, x/a:/a, secret/a:/a, secret/b:/a/"}),
			want: `
volumes: [{name: svc-secret-a, secret: {secretName: a}}]
volumeMounts: [{name: svc-secret-a, mountPath: /a}]
`,
			errs: []string{
				`metadata.annotations[refract.dev/mount]: Invalid value: "secret/a": want secret/NAME:PATH or configmap/NAME:PATH, with :ro after it for a read-only mount`,
				`metadata.annotations[refract.dev/mount]: Invalid value: "secret/a:/a:rw": want ro or nothing after the path, got "rw"`,
				`metadata.annotations[refract.dev/mount]: Invalid value: "secret/a:b": the path "b" must begin with /`,
				`metadata.annotations[refract.dev/mount]: Invalid value: "secret/a:/": the path "/": nothing can be mounted in place of a container's root: choose a directory in it`,
				`metadata.annotations[refract.dev/mount]: Invalid value: "x/a:/a": want secret/NAME or configmap/NAME, got "x/a"`,
				`metadata.annotations[refract.dev/mount]: Invalid value: "secret/b:/a/": something else is mounted there already: choose another path`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.service.DeepCopy()
			got, errs := FromService(tc.service)
			want := &refractv1beta1.InjectedItems{}
			if err := yaml.UnmarshalStrict([]byte(tc.want), want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.errs, spelled(errs)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.service); diff != "" {
				t.Errorf("FromService must not modify its argument: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestHostWithoutNamespace(t *testing.T) {
	svc := serviceOf(map[string]string{"refract.dev/derive": "host"})
	svc.Namespace = ""
	got, errs := FromService(svc)
	want := []refractv1beta1.EnvVar{{Name: "HOST", Value: "db"}}
	if diff := cmp.Diff(want, got.Env); diff != "" || errs != nil {
		t.Errorf("the short name is found from the Service's own namespace: %v: -want, +got:\n%s", errs, diff)
	}
}

// TestVolumeNames: each object gets a valid name of its own.
func TestVolumeNames(t *testing.T) {
	names := []string{
		"a", "a.b", "a-b", "a..b", strings.Repeat("a", 51), strings.Repeat("a", 52), strings.Repeat("a", 53), strings.Repeat("a", 253),
		strings.Repeat("a", 47) + ".b", "secret-a", "configmap-a",
	}
	seen := map[string]string{}
	for _, name := range names {
		for _, kind := range []string{secretKind, configMapKind} {
			got := volumeName(kind, name)
			if msgs := validation.IsDNS1123Label(got); msgs != nil {
				t.Errorf("%s %s: %s: %v", kind, name, got, msgs)
			}
			if other, taken := seen[got]; taken {
				t.Errorf("%s is of %s and of %s/%s", got, other, kind, name)
			}
			seen[got] = kind + "/" + name
		}
	}
}

func TestEffective(t *testing.T) {
	cases := map[string]struct {
		reason      string
		spec        string
		fromService string
		want        string
	}{
		"NotImplicit": {
			reason:      "The items of the status count only if spec.implicit is true.",
			spec:        `{selector: {}, service: db, env: [{name: A}]}`,
			fromService: `{env: [{name: B}]}`,
			want:        `{env: [{name: A}]}`,
		},
		"NoService": {
			reason: "Items of the spec apply even without the Service.",
			spec:   `{selector: {}, service: db, implicit: true, env: [{name: A}]}`,
			want:   `{env: [{name: A}]}`,
		},
		"ServiceAlone": {
			reason:      "A policy may take all its items from the Service.",
			spec:        `{selector: {}, service: db, implicit: true}`,
			fromService: `{env: [{name: B}], volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}]}`,
			want:        `{env: [{name: B}], volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}]}`,
		},
		"ExplicitWins": {
			reason: "Items are matched by the name of the variable or volume, by the clean path, and by the prefix and object of a source.",
			spec: `
selector: {}
service: db
implicit: true
env: [{name: A, value: mine}]
envFrom: [{secretRef: {name: s, optional: true}}]
volumes: [{name: v, emptyDir: {}}]
volumeMounts: [{name: v, mountPath: /opt}]
`,
			fromService: `
env: [{name: A, value: theirs}, {name: B, value: theirs}]
envFrom: [{secretRef: {name: s}}, {configMapRef: {name: s}}, {prefix: P_, secretRef: {name: s}}]
volumes: [{name: v, secret: {secretName: s}}, {name: w, secret: {secretName: s}}, {name: x, secret: {secretName: x}}]
volumeMounts: [{name: w, mountPath: /opt/}, {name: x, mountPath: /opt/.}, {name: x, mountPath: /x}, {name: v, mountPath: /v}]
`,
			want: `
env: [{name: A, value: mine}, {name: B, value: theirs}]
envFrom: [{secretRef: {name: s, optional: true}}, {configMapRef: {name: s}}, {prefix: P_, secretRef: {name: s}}]
volumes: [{name: v, emptyDir: {}}, {name: x, secret: {secretName: x}}]
volumeMounts: [{name: v, mountPath: /opt}, {name: x, mountPath: /x}, {name: v, mountPath: /v}]
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, tc.spec)
			if tc.fromService != "" {
				p.Status.FromService = &refractv1beta1.InjectedItems{}
				if err := yaml.UnmarshalStrict([]byte(tc.fromService), p.Status.FromService); err != nil {
					t.Fatal(err)
				}
			}
			before := p.DeepCopy()
			got := Effective(p)
			want := &refractv1beta1.InjectedItems{}
			if err := yaml.UnmarshalStrict([]byte(tc.want), want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			compiled, errs := Compile(p)
			if errs != nil {
				t.Fatal(errs.ToAggregate())
			}
			if len(compiled.env) != len(want.Env) || len(compiled.envFrom) != len(want.EnvFrom) ||
				len(compiled.volumes) != len(want.Volumes) || len(compiled.mounts) != len(want.VolumeMounts) {
				t.Error("Compile must inject what Effective says")
			}
			for i := range got.Env {
				got.Env[i].Name = "changed"
			}
			for i := range got.Volumes {
				got.Volumes[i].EmptyDir, got.Volumes[i].Secret = nil, nil
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("Effective must share nothing: -before, +after:\n%s", diff)
			}
		})
	}
}

// TestImplicitHash: the hash does not depend on whether an item comes from the policy or the Service.
func TestImplicitHash(t *testing.T) {
	explicit := compiled(t, `{selector: {}, service: db, env: [{name: A, value: "1"}]}`)
	p := policyOf(t, `{selector: {}, service: db, implicit: true}`)
	p.Status.FromService = &refractv1beta1.InjectedItems{Env: []refractv1beta1.EnvVar{{Name: "A", Value: "1"}}}
	implicit, errs := Compile(p)
	if errs != nil {
		t.Fatal(errs.ToAggregate())
	}
	if explicit.Hash() != implicit.Hash() {
		t.Error("want the same hash")
	}
}

func TestImplicitPlaces(t *testing.T) {
	p := policyOf(t, `{selector: {}, service: db, implicit: true}`)
	p.Status.FromService = &refractv1beta1.InjectedItems{
		Env: []refractv1beta1.EnvVar{{Name: "="}}, EnvFrom: []corev1.EnvFromSource{{}},
	}
	_, errs := Compile(p)
	want := []string{"status.fromService.env[0].name: Invalid value", "status.fromService.envFrom[0]: Required value"}
	if diff := cmp.Diff(want, places(errs)); diff != "" {
		t.Errorf("what is wrong must be looked for where it stands: -want, +got:\n%s", diff)
	}
}
