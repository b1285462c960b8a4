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

// referrer is a fleet with a user, mallory, who may write workloads and policies in namespace shop of the hub. The only
// Secret that she may read there is "mine".
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

// referring returns a Deployment that names the override policy of the same name, and refers to the Secret "mine".
func referring(name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, namespace: shop,
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: %[1]s}},
  spec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {
    containers: [{name: web, image: "nginx:1.25"}], volumes: [{name: v, secret: {secretName: mine}}]}}}}`, name)
}

// overriding returns an override policy with one rule.
func overriding(name, overriders string) string {
	return fmt.Sprintf("{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: %s, namespace: shop}, spec: {overrideRules: [{overriders: {%s}}]}}",
		name, overriders)
}

// run starts the controllers, and stops those of an earlier call.
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
	harness.Eventually(t, "the controllers are ready", r.controllers.Ready)
}

// must runs kubectl on a cluster as a user; an empty user means an administrator.
func (r *referrer) must(t *testing.T, cluster, user, manifest string, args ...string) {
	t.Helper()
	if out, err := r.kubectl(cluster, user, manifest, args...); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// mustNot runs a kubectl command as mallory on the hub, and fails the test unless the error contains the text want.
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

// says waits until the status of a Propagation contains the text want.
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

// arrives waits until the first member has the object in namespace shop.
func (r *referrer) arrives(t *testing.T, kind, name string) {
	t.Helper()
	harness.Eventually(t, kind+" "+name+" is on the member", func(ctx context.Context) error {
		u, err := r.env.Get(ctx, r.env.Members[0], kind, "shop", name)
		if u == nil {
			return errors.Join(err, errors.New("the object is not on the member"))
		}
		return err
	})
}

// forges sends an AdmissionReview of the stored override policy to the webhook, with an administrator as the user.
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
		t.Errorf("want the webhook to accept the review, got %s, %v", says, err)
	}
}

// stays fails the test if the Secret is on the member. It first writes another object and waits for it on the member:
// an earlier change would have brought the Secret there by then.
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

// TestReferencesOfOverrides: with an override policy, a user cannot make Refract propagate or inject a Secret that she
// may not read.
func TestReferencesOfOverrides(t *testing.T) {
	t.Parallel()
	r := &referrer{env: harness.New(t, harness.Topology{Members: 2, CRDs: true})}
	r.must(t, "hub", "", referrerRights, "apply", "-f", "-")
	crd := filepath.Join("..", "..", "config", "crd", "refract.dev_serviceinjectionpolicies.yaml")
	r.must(t, r.env.Members[0], "", "", "apply", "--server-side", "-f", crd)
	if err := r.env.JoinAll(t.Context()); err != nil {
		t.Fatal(err)
	}

	// First attempt: the policy is written while no webhook runs.
	r.run(t)
	const theirs = `jsonpatch: [{path: /spec/template/spec/imagePullSecrets, operator: add, value: [{name: theirs}]}]`
	harness.Eventually(t, "the API server knows mallory's rights", func(context.Context) error {
		out, err := r.kubectl("hub", "mallory", overriding("early", theirs), "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	r.must(t, "hub", "mallory", referring("early"), "apply", "-f", "-")
	r.arrives(t, "deployment", "early")
	r.says(t, "the report names the unchecked reference", "early.deployments.apps", "Secret theirs, which OverridePolicy shop/early adds")

	// The Secret does not travel when the webhook starts, either.
	ports, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	r.run(t, "--webhook-bind-address", ports[0], "--webhook-url", "https://"+ports[0])
	harness.Eventually(t, "the hub sends policies to the webhook", func(context.Context) error {
		if out, err := r.kubectl("hub", "mallory", overriding("heeded", theirs), "create", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(out, "theirs") {
			return fmt.Errorf("the policy was not rejected: %w: %s", err, out)
		}
		return nil
	})
	r.stays(t, "The rights of the author were never checked.", "theirs", "after-the-restart")
	r.says(t, "the report still names the reference", "early.deployments.apps", "refract.dev/approve-references")
	r.mustNot(t, "Mallory cannot approve the reference.", "Secret shop/theirs", "",
		"annotate", "overridepolicy", "early", "-n", "shop", "refract.dev/approve-references=1")
	patch := []string{"patch", "overridepolicy", "early", "-n", "shop", "--subresource=status", "--type=merge", "-p"}
	const status = `{"status":{"references":{"observedGeneration":1,"items":[{"kind":"Secret","name":"theirs"}]}}}`
	r.mustNot(t, "Nor can she write the status of the policy.", "overridepolicies/status", "",
		append(patch, status)...)
	harness.Eventually(t, "carol, who may write other fields of the status, may not write the references either", func(context.Context) error {
		if out, err := r.kubectl("hub", "carol", "", append(patch, `{"status":{"clusterCount":7}}`)...); err != nil {
			return fmt.Errorf("carol may not write another field of the status: %w: %s", err, out)
		}
		out, err := r.kubectl("hub", "carol", "", append(patch, status)...)
		if err == nil || !strings.Contains(out, "carol may not write it") {
			return fmt.Errorf("want the write to be refused, got %w: %s", err, out)
		}
		return nil
	})

	// Second attempt: an override with an image path, which writes the Secret's name into workloads.
	const byImage = `image: [{imagePath: /spec/template/spec/volumes/0/secret/secretName, operations: [{imageComponent: Repository, value: theirs-too}]}]`
	r.must(t, "hub", "mallory", overriding("image", byImage), "apply", "-f", "-")
	r.must(t, "hub", "mallory", referring("image"), "apply", "-f", "-")
	r.arrives(t, "deployment", "image")
	r.stays(t, "The rights were not checked: at the write of the policy, the image path is not known to name a Secret.", "theirs-too", "after-the-image")
	r.says(t, "the report names the reference", "image.deployments.apps", "Secret theirs-too, which OverridePolicy shop/image adds")

	// Third attempt: an AdmissionReview that names an administrator but does not come from the API server.
	r.forges(t, ports[0], "image", "CREATE")
	r.forges(t, ports[0], "image", "UPDATE")
	r.stays(t, "The review did not come from the API server.", "theirs-too", "after-the-forgery")
	r.mustNot(t, "Now the check finds the reference.", "Secret shop/theirs-too", overriding("image", byImage+", labels: [{value: {a: b}}]"), "apply", "-f", "-")

	// Fourth attempt: a Secret to which the workload refers only to pull images. Its pods cannot read that Secret.
	r.must(t, "hub", "", strings.Replace(referring("shown"), "containers: [", "imagePullSecrets: [{name: theirs-too}], containers: [", 1), "apply", "-f", "-")
	harness.Eventually(t, "mallory cannot mount a Secret that is only used to pull images", func(context.Context) error {
		out, err := r.kubectl("hub", "mallory", overriding("shown", byImage), "create", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(out, "Secret shop/theirs-too") {
			return fmt.Errorf("the policy is not refused: %w: %s", err, out)
		}
		return nil
	})

	// Fifth attempt: an injection policy. It injects on the member the Secret of its Service.
	r.must(t, "hub", "mallory", overriding("implicit", "jsonpatch: [{path: /spec/implicit, operator: add, value: true}]"), "apply", "-f", "-")
	const policy = `{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: db, namespace: shop,
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: implicit}},
  spec: {service: db, selector: {matchLabels: {app: early}}, env: [{name: A, value: b}]}}`
	r.must(t, "hub", "mallory", policy, "apply", "-f", "-")
	r.says(t, "the injection policy does not propagate", "db.serviceinjectionpolicies.refract.dev", "makes it hand out Service db on clusters")
	r.mustNot(t, "An override policy that is written now is refused, too.", "Secret shop/theirs",
		overriding("implicit", "jsonpatch: [{path: /spec/implicit, operator: add, value: true}], labels: [{value: {a: b}}]"), "apply", "-f", "-")

	// An administrator approves the references.
	r.must(t, "hub", "", "", "annotate", "overridepolicy", "early", "implicit", "-n", "shop", "refract.dev/approve-references=1")
	r.arrives(t, "secret", "theirs")
	r.arrives(t, "serviceinjectionpolicy.refract.dev", "db")
}
