package injection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

// mayPropagate lets the hub's account write the types that the test propagates, but read no Secrets.
const mayPropagate = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: hub}
rules:
- {apiGroups: [refract.dev, apps], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [namespaces], verbs: ["*"]}
- {apiGroups: ["*"], resources: ["*"], verbs: [list]}
- {nonResourceURLs: ["*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hub}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hub}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + trusted + `}]
`

// TestPropagated: the hub places a policy and a Deployment on two members, and each member injects by itself. The hub's
// account may not read Secrets of a member, but the member trusts policies from it.
func TestPropagated(t *testing.T) {
	t.Parallel()
	turn(t, "hub")
	disturb(t) // The fleet has both clusters, member and other.
	hub := beginOn(t, "hub", harness.NameOf(t))
	t.Cleanup(func() {
		hub.must(hub.api.Delete(context.WithoutCancel(t.Context()), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hub.ns}}))
	})
	members := map[string]*scene{}
	for _, name := range shared.Members {
		m := on(t, name, hub.ns)
		t.Cleanup(m.clear) // This runs after the hub's replica has ended, which would restore the policies.
		m.apply(mayPropagate)
		to, err := shared.Access(name)
		m.must(err)
		to.Cert, to.Key, err = shared.View.ClientCertificate(name, trusted, nil, time.Now().Add(time.Hour))
		m.must(err)
		m.must(shared.Join(t.Context(), name, to))
		members[name] = m
	}
	replica, err := shared.Replica("hub")
	hub.must(err)
	t.Cleanup(func() { hub.must(replica.Stop(syscall.SIGTERM)) })
	hub.until("the hub is ready", replica.Ready)

	hub.apply(`
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere}
spec: {schedulingMode: Duplicate}
---
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: allow-database, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec:
  service: db
  selector: {matchLabels: {role: web}}
  env: [{name: DB_PORT, value: 6379}, {name: PASSWORD, valueFrom: {secretKeyRef: {name: db-cred, key: password, optional: true}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, role: web, ` + playground.SidecarLabel + `: "false"}} # Its containers are compared.
    spec: ` + strings.Replace(app, "{", "{automountServiceAccountToken: false, ", 1))
	for _, m := range members {
		m.has("web", "db: allow-database\napp: env DB_PORT=6379 PASSWORD<db-cred.password")
		m.untilPolicy("allow-database", "is rolled out", rolledOut(2))
	}
	quiet := map[string]string{}
	versions := func(ctx context.Context) (map[string]string, error) {
		all := map[string]string{}
		for name, m := range members {
			p, err := m.policy(ctx, "allow-database")
			if err != nil {
				return nil, err
			}
			d := m.read("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}")[0]
			if err := m.api.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return nil, err
			}
			all[name] = fmt.Sprintf("policy %s at generation %d, Deployment at %d", p.ResourceVersion, p.Generation, d.GetGeneration())
		}
		return all, nil
	}
	hub.until("nothing changes on the hub and the members", func(ctx context.Context) error {
		now, err := versions(ctx)
		if err != nil {
			return err
		}
		if before := quiet; fmt.Sprint(before) != fmt.Sprint(now) {
			quiet = now
			return errors.New("an object has changed")
		}
		return nil
	})
	hub.stays("hub and members do not revert each other's changes", aWhile, func(ctx context.Context) error {
		now, err := versions(ctx)
		if err == nil && fmt.Sprint(now) != fmt.Sprint(quiet) {
			err = fmt.Errorf("%v, was %v", now, quiet)
		}
		return err
	})

	// A change of the policy on the hub makes both members recreate their pods.
	hub.patch(&refractv1beta1.ServiceInjectionPolicy{}, "allow-database", `{"spec":{"env":[{"name":"DB_PORT","value":7000}]}}`)
	for _, m := range members {
		m.has("web", "db: allow-database\napp: env DB_PORT=7000")
		m.untilPolicy("allow-database", "is rolled out", rolledOut(2))
	}
	// Each member writes a hash into the template for this. The hub does not revert the hash.
	quiet, err = versions(t.Context())
	hub.must(err)
	hub.stays("the hub does not revert the hash", aWhile, func(ctx context.Context) error {
		now, err := versions(ctx)
		if err == nil && fmt.Sprint(now) != fmt.Sprint(quiet) {
			err = fmt.Errorf("%v, was %v", now, quiet)
		}
		return err
	})
}
