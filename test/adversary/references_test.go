package adversary

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"refract.dev/test/harness"
)

// referrer is a fleet of which one user, mallory, may write workloads and policies in
// namespace shop of the hub, and of its Secrets may read "mine" alone.
type referrer struct {
	env         *harness.Env
	controllers *harness.Replica
}

const referrerRights = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: mallory, namespace: shop}
rules:
- {apiGroups: [apps], resources: [deployments], verbs: ["*"]}
- {apiGroups: [""], resources: [services, configmaps], verbs: ["*"]}
- {apiGroups: [""], resources: [secrets], resourceNames: [mine], verbs: [get]}
- {apiGroups: [core.kubeadmiral.io], resources: [overridepolicies], verbs: ["*"]}
- {apiGroups: [refract.dev], resources: [serviceinjectionpolicies], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mallory, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: mallory}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: carol, namespace: shop}
rules:
- {apiGroups: [core.kubeadmiral.io], resources: [overridepolicies, overridepolicies/status], verbs: [get, patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: carol, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: carol}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}]
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: shop}
spec: {schedulingMode: Duplicate}
---
{apiVersion: v1, kind: Secret, metadata: {name: mine, namespace: shop}, stringData: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: theirs, namespace: shop}, stringData: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: theirs-too, namespace: shop}, stringData: {a: b}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop, annotations: {refract.dev/env-from: secret/theirs}}
spec: {ports: [{port: 80}]}
`

// referring returns a Deployment that names an override policy and refers to the Secret
// "mine".
func referring(name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, namespace: shop,
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: %[1]s}},
  spec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {
    containers: [{name: web, image: "nginx:1.25"}], volumes: [{name: v, secret: {secretName: mine}}]}}}}`, name)
}

// overriding returns an override policy of one rule.
func overriding(name, overriders string) string {
	return fmt.Sprintf("{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: %s, namespace: shop}, spec: {overrideRules: [{overriders: {%s}}]}}",
		name, overriders)
}

// run starts the controllers, in place of those before.
func (r *referrer) run(t *testing.T, args ...string) {
	t.Helper()
	if r.controllers != nil {
		if err := r.controllers.Stop(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.controllers, err = r.env.Replica("controllers", args...); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the controllers are at work", r.controllers.Ready)
}

// must has kubectl do something on a cluster, as an administrator if user is empty.
func (r *referrer) must(t *testing.T, cluster, user, manifest string, args ...string) {
	t.Helper()
	if out, err := r.kubectl(cluster, user, manifest, args...); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// mustNot has mallory's kubectl be refused on the hub, and say this.
func (r *referrer) mustNot(t *testing.T, reason, want, manifest string, args ...string) {
	t.Helper()
	out, err := r.kubectl("hub", "mallory", manifest, args...)
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("%s\nkubectl %s: want it to be refused with %q, got %v\n%s", reason, strings.Join(args, " "), want, err, out)
	}
}

func (r *referrer) kubectl(cluster, user, manifest string, args ...string) (string, error) {
	if user != "" {
		args = append(args, "--as", user)
	}
	return r.env.KubectlSays(cluster, manifest, args...)
}

// says waits until the report on an object says something.
func (r *referrer) says(t *testing.T, reason, record, want string) {
	t.Helper()
	harness.Eventually(t, reason, func(ctx context.Context) error {
		p, err := r.env.Get(ctx, "hub", "propagations.refract.dev", "shop", record)
		if err != nil {
			return err
		}
		if p == nil || !strings.Contains(harness.Field(p, "status"), want) {
			return fmt.Errorf("Propagation %s does not say %q: %v", record, want, p)
		}
		return nil
	})
}

// arrives waits until the member has an object of namespace shop.
func (r *referrer) arrives(t *testing.T, kind, name string) {
	t.Helper()
	harness.Eventually(t, kind+" "+name+" is on the member", func(ctx context.Context) error {
		u, err := r.env.Get(ctx, r.env.Members[0], kind, "shop", name)
		if u == nil {
			return errors.Join(err, errors.New("it is not"))
		}
		return err
	})
}

// forges asks the webhook at an address about the write of an override policy as it is
// stored, as an API server might whose user is an administrator.
func (r *referrer) forges(t *testing.T, address, name, operation string) {
	t.Helper()
	policy, err := r.env.Get(t.Context(), "hub", "overridepolicies.core.kubeadmiral.io", "shop", name)
	if err != nil || policy == nil {
		t.Fatalf("OverridePolicy %s: %v", name, err)
	}
	before := policy.DeepCopy()
	before.SetGeneration(policy.GetGeneration() - 1)
	before.Object["spec"] = map[string]any{}
	gvk := policy.GroupVersionKind()
	request := map[string]any{
		"uid": "1", "kind": map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind},
		"resource":  map[string]any{"group": gvk.Group, "version": gvk.Version, "resource": "overridepolicies"},
		"namespace": "shop", "name": name, "operation": operation, "object": policy.Object,
		"userInfo": map[string]any{"username": "admin", "groups": []any{"system:masters"}},
	}
	if operation == "UPDATE" {
		request["oldObject"] = before.Object
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/validate/policies", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	says, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(says), `"allowed":true`) {
		t.Errorf("want the webhook to believe it, got %s, %v", says, err)
	}
}

// stays wants that a Secret has not come to the member by the time at which something
// came there that was written after all that could have brought it.
func (r *referrer) stays(t *testing.T, reason, secret, marker string) {
	t.Helper()
	r.must(t, "hub", "", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}}", marker),
		"apply", "-f", "-")
	r.arrives(t, "configmap", marker)
	u, err := r.env.Get(t.Context(), r.env.Members[0], "secret", "shop", secret)
	if err != nil || u != nil {
		t.Errorf("%s\nSecret %s is on the member, or that is not known: %v", reason, secret, err)
	}
}

// TestReferencesOfOverrides: by an override nobody has what he may not read travel, or
// given out on members, however it is written and whenever.
func TestReferencesOfOverrides(t *testing.T) {
	t.Parallel()
	r := &referrer{env: harness.New(t, harness.Topology{Members: 2, CRDs: true})}
	r.must(t, "hub", "", referrerRights, "apply", "-f", "-")
	crd := filepath.Join("..", "..", "config", "crd", "refract.dev_serviceinjectionpolicies.yaml")
	r.must(t, r.env.Members[0], "", "", "apply", "--server-side", "-f", crd)
	if err := r.env.JoinAll(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Written while nobody asked.
	r.run(t)
	const theirs = `jsonpatch: [{path: /spec/template/spec/imagePullSecrets, operator: add, value: [{name: theirs}]}]`
	harness.Eventually(t, "mallory's rights are known", func(context.Context) error {
		out, err := r.kubectl("hub", "mallory", overriding("early", theirs), "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	r.must(t, "hub", "mallory", referring("early"), "apply", "-f", "-")
	r.arrives(t, "deployment", "early")
	r.says(t, "what was written while no webhook ran is said to stay", "early.deployments.apps", "Secret theirs, which OverridePolicy shop/early adds")

	// Nor does it travel because somebody asks now.
	ports, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	r.run(t, "--webhook-bind-address", ports[0], "--webhook-url", "https://"+ports[0])
	harness.Eventually(t, "the hub asks about policies", func(context.Context) error {
		if out, err := r.kubectl("hub", "mallory", overriding("heeded", theirs), "create", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(out, "theirs") {
			return fmt.Errorf("it does not: %w: %s", err, out)
		}
		return nil
	})
	r.stays(t, "Nobody was asked about it.", "theirs", "after-the-restart")
	r.says(t, "it is still said to stay", "early.deployments.apps", "refract.dev/approve-references")
	r.mustNot(t, "Mallory cannot say that it may travel.", "Secret shop/theirs", "",
		"annotate", "overridepolicy", "early", "-n", "shop", "refract.dev/approve-references=1")
	patch := []string{"patch", "overridepolicy", "early", "-n", "shop", "--subresource=status", "--type=merge", "-p"}
	const status = `{"status":{"references":{"observedGeneration":1,"items":[{"kind":"Secret","name":"theirs"}]}}}`
	r.mustNot(t, "Nor write what is known of the policy.", "overridepolicies/status", "",
		append(patch, status)...)
	harness.Eventually(t, "carol, who reports on policies, may not write that either", func(context.Context) error {
		if out, err := r.kubectl("hub", "carol", "", append(patch, `{"status":{"clusterCount":7}}`)...); err != nil {
			return fmt.Errorf("she may not write the rest of a status: %w: %s", err, out)
		}
		out, err := r.kubectl("hub", "carol", "", append(patch, status)...)
		if err == nil || !strings.Contains(out, "carol may not write it") {
			return fmt.Errorf("want it to be refused, got %w: %s", err, out)
		}
		return nil
	})

	// By an image path, which writes a name into what comes later.
	const byImage = `image: [{imagePath: /spec/template/spec/volumes/0/secret/secretName, operations: [{imageComponent: Repository, value: theirs-too}]}]`
	r.must(t, "hub", "mallory", overriding("image", byImage), "apply", "-f", "-")
	r.must(t, "hub", "mallory", referring("image"), "apply", "-f", "-")
	r.arrives(t, "deployment", "image")
	r.stays(t, "Nobody was asked about it, as nobody could know.", "theirs-too", "after-the-image")
	r.says(t, "it is said to stay", "image.deployments.apps", "Secret theirs-too, which OverridePolicy shop/image adds")

	// Nor by asking the webhook in an administrator's name.
	r.forges(t, ports[0], "image", "CREATE")
	r.forges(t, ports[0], "image", "UPDATE")
	r.stays(t, "The API server has not asked that.", "theirs-too", "after-the-forgery")
	r.mustNot(t, "Now one can know.", "Secret shop/theirs-too", overriding("image", byImage+", labels: [{value: {a: b}}]"), "apply", "-f", "-")

	// Of a Secret that the object names itself, but shows to no pod.
	r.must(t, "hub", "", strings.Replace(referring("shown"), "containers: [", "imagePullSecrets: [{name: theirs-too}], containers: [", 1), "apply", "-f", "-")
	harness.Eventually(t, "mallory cannot have pods see what they only pull images with", func(context.Context) error {
		out, err := r.kubectl("hub", "mallory", overriding("shown", byImage), "create", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(out, "Secret shop/theirs-too") {
			return fmt.Errorf("it is not refused: %w: %s", err, out)
		}
		return nil
	})

	// By a policy for pods, which hands out on the member what its Service names.
	r.must(t, "hub", "mallory", overriding("implicit", "jsonpatch: [{path: /spec/implicit, operator: add, value: true}]"), "apply", "-f", "-")
	const policy = `{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: db, namespace: shop,
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: implicit}},
  spec: {service: db, selector: {matchLabels: {app: early}}, env: [{name: A, value: b}]}}`
	r.must(t, "hub", "mallory", policy, "apply", "-f", "-")
	r.says(t, "the injection policy does not go out", "db.serviceinjectionpolicies.refract.dev", "makes it hand out Service db on clusters")
	r.mustNot(t, "Whoever writes it so himself is refused, too.", "Secret shop/theirs",
		overriding("implicit", "jsonpatch: [{path: /spec/implicit, operator: add, value: true}], labels: [{value: {a: b}}]"), "apply", "-f", "-")

	// Somebody with the right says so.
	r.must(t, "hub", "", "", "annotate", "overridepolicy", "early", "implicit", "-n", "shop", "refract.dev/approve-references=1")
	r.arrives(t, "secret", "theirs")
	r.arrives(t, "serviceinjectionpolicy.refract.dev", "db")
}
