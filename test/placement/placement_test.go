// Package placement tests that mistakes in policies change no cluster before a user approves them. It uses processes, a
// hub and simulated members.
package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
	"refract.dev/test/harness"
	"refract.dev/test/simulation"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

// fleet is a hub with simulated members and controllers.
type fleet struct {
	*testing.T
	*harness.Env

	members     *simulation.Fleet
	controllers *harness.Replica
	args        []string
}

const size, objects = 30, 10

// quiet is the time for which members must not change.
const quiet = 3 * time.Second

func start(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{T: t, Env: harness.New(t, harness.Topology{CRDs: true})}
	var err error
	if f.members, err = simulation.Start(t.Context(), size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.members.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, m := range f.members.Members {
		if err := f.Join(t.Context(), m.Name, harness.Access{Endpoint: m.Endpoint, CA: m.CA, Token: m.Token}); err != nil {
			t.Fatal(err)
		}
	}
	f.kubectl("", "label", "federatedclusters", "--all", "region=eu")
	ports, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	f.args = []string{"--webhook-bind-address", ports[0], "--webhook-url", "https://" + ports[0]}
	f.run("first")
	harness.Eventually(t, "the API server asks about policies", func(context.Context) error {
		_, err := f.KubectlSays("hub", "", "get", "validatingwebhookconfiguration", "refract-policies")
		return err
	})
	return f
}

// run replaces the running controllers by others.
func (f *fleet) run(name string) {
	f.Helper()
	if f.controllers != nil {
		if err := f.controllers.Stop(syscall.SIGKILL); err != nil {
			f.Fatal(err)
		}
	}
	var err error
	if f.controllers, err = f.Replica(name, append(f.args, "--lease-duration", "8s")...); err != nil {
		f.Fatal(err)
	}
	harness.Eventually(f, "the controllers are ready", f.controllers.Ready)
}

// kubectl runs kubectl and returns its output, including warnings.
func (f *fleet) kubectl(manifest string, args ...string) string {
	f.Helper()
	out, err := f.KubectlSays("hub", manifest, args...)
	if err != nil {
		f.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

// says fails the test unless the text contains all of these.
func (f *fleet) says(what, text string, want ...string) {
	f.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			f.Errorf("%s: want %q in the output, got:\n%s", what, w, text)
		}
	}
}

// copies waits until the members hold this number of copies.
func (f *fleet) copies(what string, want int) {
	f.Helper()
	harness.Eventually(f, what, func(context.Context) error { return f.holds(want) })
}

func (f *fleet) holds(want int) error {
	managed := labels.SelectorFromSet(labels.Set{corev1alpha1.ManagedLabel: "true"})
	if got := f.members.Count(managed); got != want {
		return fmt.Errorf("the members hold %d copies, want %d", got, want)
	}
	return nil
}

// waiting waits until the Propagations of all objects of a type report that they wait for approval, with these texts.
func (f *fleet) waiting(resource, leaves, joins string) {
	f.Helper()
	harness.Eventually(f, resource+" wait for approval", func(context.Context) error {
		out, err := f.KubectlSays("hub", "", "get", "propagations", "-n", "shop", "-o",
			`jsonpath={range .items[?(@.status.held)]}{.spec.source.resource} {.status.conditions[?(@.type=="Synced")].message}{"\n"}{end}`)
		if err != nil {
			return errors.New(out)
		}
		if n := strings.Count(out, resource+" waits for approval: "+leaves+joins); n != objects {
			return fmt.Errorf("%d objects wait:\n%s", n, out)
		}
		return nil
	})
}

// writes returns the numbers of applies and deletions on members.
func (f *fleet) writes() (applied, deleted int64) {
	requests := f.members.Requests()
	return requests["apply"] + requests["create"] + requests["patch"], requests["delete"]
}

const policies = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: shop}
spec: {schedulingMode: Duplicate, clusterSelector: {region: eu}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: one, namespace: shop}
spec: {schedulingMode: Duplicate, placement: [{cluster: m-0001}]}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: none, namespace: shop}
spec: {schedulingMode: Duplicate, clusterSelector: {region: nowhere}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: region, namespace: shop}
spec: {overrideRules: [{overriders: {labels: [{operator: addIfAbsent, value: {region: eu}}]}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: everything, namespace: shop}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: everything, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: everything}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
`

// TestMistakesWait makes mistakes in two policies, each of ten objects, on thirty members: a clusterSelector that
// matches no cluster, and an empty placement.
func TestMistakesWait(t *testing.T) {
	f := start(t)
	f.kubectl("", "create", "namespace", "shop")
	f.kubectl(policies, "apply", "-f", "-")
	var all []string
	for i := range objects {
		all = append(all, fmt.Sprintf(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: web-%[1]d, namespace: shop,
 labels: {kubeadmiral.io/propagation-policy-name: all, kubeadmiral.io/override-policy-name: region}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key-%[1]d, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: one}}}
`, i))
	}
	f.kubectl(strings.Join(all, "---"), "apply", "-f", "-")
	f.copies("the objects are placed", objects*size+objects)

	// The response to the deletion of an override policy warns that its changes are reverted.
	f.says("the deletion of the override policy", f.kubectl("", "delete", "overridepolicy", "region", "-n", "shop"),
		"Warning: the overrides of this policy are reverted: this changes 10 ConfigMaps on 30 clusters")
	harness.Eventually(t, "the deletion is an event", func(context.Context) error {
		out, err := f.KubectlSays("hub", "", "get", "events", "-n", "shop", "--field-selector", "reason=PolicyDeleted")
		if err == nil && !strings.Contains(out, "its changes are reverted: 10 objects on 30 clusters named it") {
			err = errors.New(out)
		}
		return err
	})
	harness.Eventually(t, "its changes are reverted", func(context.Context) error {
		if applied, _ := f.writes(); applied < 2*objects*size+objects {
			return fmt.Errorf("%d writes", applied)
		}
		return nil
	})

	// refract diff warns of the effect of a typo, and so does the API server at the write.
	typo := strings.Replace(policies, "region: eu}}\n", "region: ue}}\n", 1)
	file := filepath.Join(t.TempDir(), "typo.yaml")
	if err := os.WriteFile(file, []byte(strings.Split(typo, "---")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := f.Refract("diff", "--hub", "--kubeconfig", f.Kubeconfig("hub"), "--to", file) // The exit code is 1.
	f.says("refract diff", out, "waits for approval: would leave 30 of 30 clusters (m-0001, m-0002, m-0003 and 27 more)", "300 copies wait for approval")
	number := f.number("ue")
	says := "refract.dev/approve-placement=" + number
	f.rejects("no change of the placement waits for approval", "annotate", "propagationpolicy", "all", "-n", "shop", says, "--as=tenant")
	f.rejects("no change of the placement waits for approval", "annotate", "propagation", "web-0.configmaps", "-n", "shop", says, "--as=tenant")
	f.rejects("no change of the placement waits for approval", "patch", "propagationpolicy", "all", "-n", "shop", "--as=tenant", "--type=merge", "-p",
		`{"metadata":{"annotations":{"refract.dev/approve-placement":"`+number+`"}},"spec":{"clusterSelector":{"region":"ue"}}}`)
	f.rejects("tenant may not write it: leave status.placementHeld as it is", "patch", "propagationpolicy", "all", "-n", "shop", "--as=tenant", "--type=merge",
		"--subresource=status", "-p", `{"status":{"placementHeld":{"token":"`+number+`","objects":10}}}`)
	f.rejects("tenant may not write it: leave status.held as it is", "patch", "propagation", "web-0.configmaps", "-n", "shop", "--as=tenant", "--type=merge",
		"--subresource=status", "-p", `{"status":{"held":{"number":"`+number+`","token":"`+number+`"}}}`)
	applied, deleted := f.writes()
	f.says("the typo", f.kubectl(strings.Split(typo, "---")[0], "apply", "-f", "-"),
		"Warning: removes 10 ConfigMaps from 30 clusters, which waits for approval", "refract approve propagationpolicy/shop/all")
	f.waiting("configmaps", "would leave 30 of 30 clusters (m-0001, m-0002, m-0003 and 27 more); approve with: refract approve propagationpolicy/shop/all", "")
	f.says("the emptied placement", f.kubectl("", "patch", "propagationpolicy", "one", "-n", "shop", "--type=merge", "-p", `{"spec":{"placement":[]}}`),
		"Warning: places 10 Secrets on 29 more clusters, which waits for approval")
	f.waiting("secrets", "", "would be added to 29 other clusters (m-0002, m-0003, m-0004 and 26 more)")
	f.unchanged(applied, deleted)

	token := f.token("all", objects, "")
	f.rejects("this is not what waits for approval", "annotate", "propagationpolicy", "all", "-n", "shop", says, "--as=tenant")
	f.rejects("this is not what waits for approval", "annotate", "propagation", "web-0.configmaps", "-n", "shop", says, "--as=tenant")

	// Changes still wait for approval after other controllers have taken over.
	f.run("second")
	f.unchanged(applied, deleted)
	if is := f.token("all", objects, ""); is != token {
		t.Errorf("want the same token after other controllers took over: got %q, and %q before", is, token)
	}

	// refract approve shows the waiting change, and approves it.
	out, err := f.Refract("approve", "propagationpolicy/shop/all", "--yes", "--kubeconfig", f.Kubeconfig("hub"))
	if err != nil {
		t.Fatal(err, out)
	}
	f.says("refract approve", out, "10 objects wait for the approval of propagationpolicy/shop/all", "would leave 30 of 30 clusters")
	f.copies("the approved copies are removed", objects)
	if _, err := f.Refract("approve", "propagationpolicy/shop/one", "--yes", "--kubeconfig", f.Kubeconfig("hub")); err != nil {
		t.Fatal(err)
	}
	f.copies("the approved copies are created", objects*size)

	// The same mistake again: a policy selects no cluster.
	f.kubectl(strings.Split(policies, "---")[0], "apply", "-f", "-")
	f.copies("the typo is corrected", 2*objects*size)
	token = ""
	for range 2 {
		applied, deleted = f.writes()
		f.kubectl("", "label", "configmap", "web-0", "-n", "shop", corev1alpha1.PropagationPolicyLabel+"=none", "--overwrite")
		token = f.token("none", 1, token)
		f.unchanged(applied, deleted)
		if _, err := f.Refract("approve", "propagationpolicy/shop/none", "--yes", "--kubeconfig", f.Kubeconfig("hub")); err != nil {
			t.Fatal(err)
		}
		f.copies("the approved copies are removed", (2*objects-1)*size)
		f.kubectl("", "label", "configmap", "web-0", "-n", "shop", corev1alpha1.PropagationPolicyLabel+"=all", "--overwrite")
		f.copies("the object names its policy again", 2*objects*size)
	}
	f.kubectl("", "delete", "propagationpolicy", "all", "-n", "shop")
	f.kubectl("", "delete", "configmaps", "-n", "shop", "-l", corev1alpha1.PropagationPolicyLabel+"=all")
	f.copies("the ConfigMaps are deleted", objects*size)

	// Two labels are removed by mistake.
	f.kubectl("", "label", "secret", "key-0", "key-1", "-n", "shop", corev1alpha1.PropagationPolicyLabel+"-")
	harness.Eventually(t, "it waits", func(context.Context) error {
		out, err := f.Refract("get", "secret/key-0", "-n", "shop", "--kubeconfig", f.Kubeconfig("hub"))
		if err == nil && !strings.Contains(out, "approve with: refract approve secret/shop/key-0") {
			err = errors.New(out)
		}
		return err
	})
	if err := f.holds(objects * size); err != nil {
		t.Error(err)
	}
	if _, err := f.Refract("approve", "secret/shop/key-0", "--yes", "--kubeconfig", f.Kubeconfig("hub")); err != nil {
		t.Fatal(err)
	}
	f.copies("the copies of one of them go", (objects-1)*size)
}

// rejects fails the test unless the hub rejects the command with this text.
func (f *fleet) rejects(want string, args ...string) {
	f.Helper()
	out, err := f.KubectlSays("hub", "", args...)
	if err == nil || !strings.Contains(out, want) {
		f.Errorf("kubectl %v: want %q, got %v\n%s", args, want, err, out)
	}
}

// token waits until the policy asks for the approval of a change of this number of objects with a token other than
// before, and returns the new token.
func (f *fleet) token(policy string, want int, before string) (token string) {
	f.Helper()
	harness.Eventually(f, policy+" asks to be approved", func(context.Context) error {
		out, err := f.KubectlSays("hub", "", "get", "propagationpolicy", policy, "-n", "shop", "-o", "jsonpath={.status.placementHeld.objects} {.status.placementHeld.token}")
		if err != nil {
			return errors.New(out)
		}
		count, is, _ := strings.Cut(strings.TrimSpace(out), " ")
		if token = is; count != strconv.Itoa(want) || is == before {
			return fmt.Errorf("status.placementHeld is %q", out)
		}
		return nil
	})
	return token
}

// number returns the approval that earlier versions used: a number that any client can compute before the change.
func (f *fleet) number(region string) string {
	f.Helper()
	out := f.kubectl("", "get", "propagationpolicy", "all", "-n", "shop", "-o", "json")
	policy := &corev1alpha1.PropagationPolicy{}
	if err := json.Unmarshal([]byte(out), policy); err != nil {
		f.Fatal(err)
	}
	policy.Generation++
	policy.Spec.ClusterSelector = map[string]string{"region": region}
	compiled, errs := placement.Compile(policy)
	if len(errs) > 0 {
		f.Fatal(errs)
	}
	request := &placement.Request{}
	for _, m := range f.members.Members {
		request.Clusters = append(request.Clusters, placement.Cluster{
			Cluster: match.Cluster{Name: m.Name, Labels: map[string]string{"region": "eu"}}, Ready: true,
		})
		request.Previous = append(request.Previous, placement.Target{Cluster: m.Name})
	}
	d, err := compiled.Place(request)
	if err != nil || d.Held == nil {
		f.Fatalf("the change does not wait: %v", err)
	}
	return d.Held.Number
}

// unchanged fails the test if a member gets a write in the next seconds.
func (f *fleet) unchanged(applied, deleted int64) {
	f.Helper()
	harness.Consistently(f, "nothing is written to a member", quiet, func(context.Context) error {
		if a, d := f.writes(); a != applied || d != deleted {
			return fmt.Errorf("%d creations or changes, %d deletions", a-applied, d-deleted)
		}
		return nil
	})
}
