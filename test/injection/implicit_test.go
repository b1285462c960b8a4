package injection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/harness"
)

// dbService is a Service whose annotations define items for its consumers.
const dbService = `
apiVersion: v1
kind: Service
metadata:
  name: db
  annotations:
    refract.dev/env: '{"MODE":"safe","DB_USER":"app"}'
    refract.dev/env-from: secret/db-cred,configmap/db-conf
    refract.dev/mount: secret/db-tls:/etc/db/tls:ro
    refract.dev/prefix: DB_
    refract.dev/derive: host,port
spec:
  ports:
  - {name: sql, port: 5432}
  - {name: admin, port: 8080}
---
apiVersion: v1
kind: Secret
metadata: {name: db-cred}
stringData: {password: x}
---
apiVersion: v1
kind: Secret
metadata: {name: db-tls}
stringData: {tls.crt: x}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: db-conf}
data: {a: b}
`

// has waits until the pods of the app match a sketch in which NS stands for the namespace.
func (s *scene) has(app, want string) {
	s.Helper()
	want = strings.ReplaceAll(lines(want), "NS", s.ns)
	s.until("the pods of "+app+" match the sketch", func(ctx context.Context) error {
		pods, err := s.pods(ctx, client.MatchingLabels{"app": app})
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			return errors.New("there are no pods")
		}
		for i := range pods {
			got, err := sketch(&pods[i])
			if err != nil {
				return err
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("pod %s: -want, +got:\n%s", pods[i].Name, diff)
			}
		}
		return nil
	})
}

// TestImplicit: a policy gets items from its Service. The test creates, changes and deletes the Service, and the pods
// are recreated each time.
func TestImplicit(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("", app, "web")
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, implicit: true, env: [{name: MODE, value: fast}]}`))
	s.untilPolicy("db", "has no Service", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		return condition(p, refractv1beta1.ConditionServiceFound, metav1.ConditionFalse, "")
	})
	s.has("web", "db: db\napp: env MODE=fast") // The policy's own items apply.

	s.apply(dbService)
	p := s.untilPolicy("db", "has a Service", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Effective == nil {
			return errors.New("status.effective is empty")
		}
		return condition(p, refractv1beta1.ConditionServiceFound, metav1.ConditionTrue, "")
	})
	for _, e := range p.Status.Effective.Env {
		if e.Name == "MODE" && e.Value != "fast" {
			t.Errorf("The policy must take precedence over the Service: MODE is %s", e.Value)
		}
	}
	effective := inJSON(p.Status.Effective)
	for _, want := range []string{"DB_HOST", "db." + s.ns + ".svc", "5432", "8080", "db-cred", "db-conf", "/etc/db/tls"} {
		if !strings.Contains(effective, want) {
			t.Errorf("status.effective: want %s in it, got %s", want, effective)
		}
	}
	s.until("the pods have all items", func(ctx context.Context) error {
		pods, err := s.pods(ctx, client.MatchingLabels{"app": "web"})
		if err != nil {
			return err
		}
		for i := range pods {
			c := &pods[i].Spec.Containers[0]
			got := partsOf(c.Env, c.EnvFrom, c.VolumeMounts)
			for _, want := range []string{
				"MODE=fast", "DB_USER=app", "DB_HOST=db." + s.ns + ".svc", "=5432", "=8080", "from :secret/db-cred :configmap/db-conf", "mount /etc/db/tls=", ":ro",
			} {
				if !strings.Contains(got, want) {
					return fmt.Errorf("pod %s: want %q in %q", pods[i].Name, want, got)
				}
			}
		}
		return nil
	})
	s.untilPolicy("db", "is rolled out", rolledOut(2))

	// The Service changes, and the pods are recreated.
	s.patch(&corev1.Service{}, "db", `{"metadata":{"annotations":{"refract.dev/env":"{\"DB_USER\":\"other\"}","refract.dev/env-from":null,"refract.dev/mount":null,"refract.dev/derive":null,"refract.dev/prefix":null}}}`)
	s.has("web", "db: db\napp: env MODE=fast DB_USER=other")
	s.untilPolicy("db", "is rolled out", rolledOut(2))

	// The status of the policy reports an invalid annotation, and only the policy's own items are injected.
	s.patch(&corev1.Service{}, "db", `{"metadata":{"annotations":{"refract.dev/env":"{"}}}`)
	s.untilPolicy("db", "names the invalid annotation", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if !strings.Contains(inJSON(p.Status.Conditions), "refract.dev/env") {
			return errors.New("want the name of the annotation")
		}
		return nil
	})
	s.must(s.api.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db"}}))
	s.untilPolicy("db", "has no Service any more", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		return condition(p, refractv1beta1.ConditionServiceFound, metav1.ConditionFalse, "")
	})
	s.has("web", "db: db\napp: env MODE=fast")
}

// author returns a client of a user who may write policies and Services of the namespace, but may not read objects.
func (s *scene) author(user string) client.Client {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author}
rules:
- {apiGroups: [refract.dev], resources: [serviceinjectionpolicies], verbs: ["*"]}
- {apiGroups: [""], resources: [services], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]
`, strings.ReplaceAll(user, ":", "-"), user))
	c, err := connect(s.cluster, user, s.warnings)
	s.must(err)
	return c
}

// forbidden returns an error unless err says that the user may not get the named object.
func forbidden(err error, what string) error {
	if err == nil {
		return fmt.Errorf("it is permitted despite the reference to %s", what)
	}
	if !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "may not get") {
		return fmt.Errorf("want it refused because of %s, got %w", what, err)
	}
	return nil
}

// TestAuthorsRights: a policy may inject only objects that the author of the policy may read.
func TestAuthorsRights(t *testing.T) {
	t.Parallel()
	s := begin(t)
	alice, robot := s.author("alice"), s.author(trusted)
	handsOut := map[string]string{
		"env":       `env: [{name: P, valueFrom: {secretKeyRef: {name: NAME, key: a}}}]`,
		"envFrom":   `envFrom: [{secretRef: {name: NAME}}]`,
		"configMap": `envFrom: [{configMapRef: {name: NAME}}]`,
		"volume":    `volumes: [{name: v, secret: {secretName: NAME}}]`,
		"projected": `volumes: [{name: v, projected: {sources: [{secret: {name: NAME}}]}}]`,
		"optional":  `envFrom: [{secretRef: {name: NAME, optional: true}}]`,
	}
	s.until("alice may write policies", func(ctx context.Context) error {
		return alice.Create(ctx, s.read(sip("plain", `{selector: {}, `+port+`}`))[0], client.DryRunAll)
	})
	policy := func(name, spec string) map[string]any {
		return s.read(sip(strings.ToLower(name), "{selector: {}, "+strings.ReplaceAll(spec, "NAME", "theirs")+"}"))[0].Object
	}
	for name, spec := range handsOut {
		if err := forbidden(harness.Apply(t.Context(), alice, policy(name, spec)), "theirs"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := harness.Apply(t.Context(), robot, policy(name, spec)); err != nil {
			t.Errorf("%s: want it permitted for a trusted author: %v", name, err)
		}
	}
	// A reference in the policy does not permit another one.
	if err := forbidden(alice.Patch(t.Context(), &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "env"}},
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"envFrom":[{"secretRef":{"name":"more"}}]}}`))), "more"); err != nil {
		t.Error(err)
	}
	// The right to get one Secret by name is sufficient.
	s.apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [mine], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`)
	s.until("alice may inject a Secret that she may read", func(ctx context.Context) error {
		return harness.Apply(ctx, alice, s.read(sip("mine", `{selector: {}, envFrom: [{secretRef: {name: mine}}]}`))[0].Object)
	})
}

// TestServicesRights: the annotations of a Service may inject only objects that their author may read.
func TestServicesRights(t *testing.T) {
	t.Parallel()
	s := begin(t)
	bob, robot := s.author("bob"), s.author(trusted)
	const service = `{apiVersion: v1, kind: Service, metadata: {name: db, annotations: {%s}}, spec: {ports: [{port: 80}]}}`
	s.until("bob may write Services", func(ctx context.Context) error {
		return bob.Create(ctx, s.read(fmt.Sprintf(service, "a: b"))[0], client.DryRunAll)
	})
	for _, annotation := range []string{"refract.dev/env-from: secret/theirs", "refract.dev/env-from: 'secret/theirs,configmap/theirs-too'", "refract.dev/mount: 'secret/theirs:/a:ro'", "refract.dev/mount: 'secret/theirs:/a'"} {
		s.until("it is refused: "+annotation, func(ctx context.Context) error {
			return forbidden(bob.Create(ctx, s.read(fmt.Sprintf(service, annotation))[0], client.DryRunAll), "theirs")
		})
	}
	s.must(robot.Create(t.Context(), s.read(fmt.Sprintf(service, "refract.dev/env-from: secret/theirs"))[0])) // A trusted author may.
	for what, patch := range map[string]string{
		"the annotations of the Service are unchanged": `{"metadata":{"annotations":{"a":"b"}},"spec":{"ports":[{"port":81}]}}`,
		"the annotation is removed":                    `{"metadata":{"annotations":{"refract.dev/env-from":null}}}`,
	} {
		if err := bob.Patch(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db"}}, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
