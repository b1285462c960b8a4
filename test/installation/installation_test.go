package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"refract.dev/test/harness"
)

// ofUsers has objects of users: a policy, and objects that do not depend on the installation.
const ofUsers = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: default}
spec: {overrideRules: [{overriders: {jsonpatch: [{path: /spec/replicas, operator: replace, value: 2}]}}]}
`

// TestInstallAndUninstall: an installation works and passes refract check. The uninstallation restores the former state
// of the cluster, but keeps objects of users; with --purge it deletes them, too.
func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	w := begin(t, 1)
	before := w.everything()

	if out, code := w.refract("check"); code != 1 || !strings.Contains(out, "✗ installed    Refract is not installed in namespace "+system) {
		t.Errorf("want refract check to report that nothing is installed, got exit code %d\n%s", code, out)
	}
	w.must("check", "--pre", "--injection", "--conversion")

	// install runs the check, so the replicas must run already. --export lets the test start a replica before.
	w.kubectl(w.must("install", "--export", "--image", image), "apply", "-f", "-")
	propagation := w.start("refract")
	out := w.must("install", "--image", image)
	harness.WantAll(t, "The output names the written objects, the wait and the check.", out, []string{
		"deployment " + system + "/refract configured", "deployment " + system + "/refract: 2 of 2 replicas are ready", "✔ answer",
	})
	if again := w.must("install", "--image", image); strings.Contains(again, "created") || strings.Contains(again, "configured") {
		t.Errorf("want a second installation to change nothing, got\n%s", again)
	}
	w.kubectl(ofUsers, "apply", "-f", "-")

	// In a real cluster the pods end with the Deployment. Here a replica runs in their place, so the test ends it.
	w.kill(propagation)
	out = w.must("uninstall")
	harness.WantAll(t, "The output names the removed objects.", out, []string{
		"validatingwebhookconfiguration refract-policies deleted", "deployment " + system + "/refract deleted", "clusterrole refract-hub deleted",
		"Refract is removed from the cluster",
	})
	w.kubectl(strings.ReplaceAll(ofUsers, "name: web", "name: other"), "apply", "-f", "-")

	out = w.must("uninstall", "--purge", "--yes")
	harness.WantAll(t, "The output lists the objects to delete.", out,
		[]string{"2 objects would be deleted:", "overridepolicies.core.kubeadmiral.io: default/other, default/web"})
	w.gone("namespace", namespaceOf(system))
	if diff := cmp.Diff(before, w.everything()); diff != "" {
		t.Errorf("objects of the cluster: -before, +after:\n%s", diff)
	}
}

// TestManifestsDeleted: after a manual deletion of the manifests, users can write the same objects as before the
// installation.
func TestManifestsDeleted(t *testing.T) {
	t.Parallel()
	w := begin(t, 1)
	manifest := w.must("install", "--export", "--propagation", "--injection", "--conversion", "--image", image)
	w.kubectl(manifest, "apply", "-f", "-")
	w.start("refract")
	w.start("refract-injection", "--injection")
	w.start("refract-conversion", "--conversion")
	asked := []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refract-policies"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refract-injection-policies"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refract-injection-policies"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refract-injection"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refract-injection"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refract-conversion"}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "refract-followers"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refract-followers"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refract-services"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refract-injection-status"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refract-unconverted"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refract-conversion-in-use"}},
	}
	for _, o := range asked {
		harness.Eventually(t, o.GetName()+" belongs to the installation", func(ctx context.Context) error {
			if err := w.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if len(o.GetOwnerReferences()) == 0 {
				return fmt.Errorf("%s has no owner", o.GetName())
			}
			return nil
		})
	}
	w.kubectl("", "delete", "validatingadmissionpolicybinding", "refract-injection-pods")
	if said := wrong(w.check()); !strings.Contains(said, `policies: the API server does not restrict the accounts of Refract`) {
		t.Errorf("want a missing admission policy reported, got\n%s", said)
	}
	w.kubectl(manifest, "apply", "-f", "-")
	// The replicas continue for a while, as pods do for half a minute after their deletion. What they write last must
	// be removed as well.
	w.kubectl(manifest, "delete", "-f", "-", "--wait=false")
	for _, o := range asked {
		w.gone(fmt.Sprintf("%T", o), o)
	}
	harness.Eventually(t, "policies can be written", func(context.Context) error {
		_, err := w.Kubectl(site, ofUsers, "apply", "-f", "-")
		return err
	})
	w.gone("namespace", namespaceOf(system))
	for _, r := range w.check().Results {
		if r.Check == "left" {
			t.Errorf("want no remaining objects, got %s", r.Message)
		}
	}

	// A replica may run outside of the cluster.
	outside, err := w.ReplicaFor(site, "outside")
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.Await(t.Context(), outside.Ready); err != nil {
		t.Fatal(err)
	}
	w.settled("a program outside of the cluster is right", nil)
}

// TestManifestsDeletedWhileConverting: a manual deletion of the manifests removes everything except the conversion, as
// long as objects need it. The message tells users how to remove the conversion anyway. Afterwards users can write the
// same objects as before the installation.
func TestManifestsDeletedWhileConverting(t *testing.T) {
	t.Parallel()
	w := begin(t, 1)
	manifest := w.must("install", "--export", "--propagation", "--conversion", "--image", image)
	w.kubectl(manifest, "apply", "-f", "-")
	w.start("refract")
	w.start("refract-conversion", "--conversion")
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	example := filepath.Join(root, "examples", "conversion", "rename")
	w.kubectl("", "apply", "-f", filepath.Join(example, "crd.yaml"))
	w.kubectl("", "apply", "-f", filepath.Join(example, "policy.yaml"))
	w.kubectl("", "wait", "--for=condition=Ready", "conversionpolicy", "--all", "--timeout=2m")
	w.kubectl("{apiVersion: traffic.example.com/v1alpha1, kind: Route, metadata: {name: a, namespace: default}}", "create", "-f", "-")
	converted := func() {
		t.Helper()
		if got := w.kubectl("", "get", "routes.v1.traffic.example.com", "-A", "-o", "name"); got != "route.traffic.example.com/a\n" {
			t.Errorf("want the objects in a version other than the stored one, got %q", got)
		}
	}

	// API servers enforce a new admission policy only after a moment.
	harness.Eventually(t, "the conversion cannot be deleted", func(context.Context) error {
		_, err := w.KubectlSays(site, "", "delete", "deployment", "refract-conversion", "-n", system, "--dry-run=server")
		if err == nil {
			return errors.New("the deletion is allowed")
		}
		return nil
	})
	said, err := w.KubectlSays(site, manifest, "delete", "-f", "-", "--wait=false")
	if err == nil {
		t.Errorf("want kubectl to report objects that it could not delete, got\n%s", said)
	}
	harness.WantAll(t, "The message has the reason and the remedy.", said, []string{
		`ConversionPolicy routes converts routes.traffic.example.com`, "refract uninstall --unwire", `deployments.apps "refract-conversion" is forbidden`,
		`namespaces "kube-admiral-system" is forbidden`, `deployment.apps "refract" deleted`, `clusterrole.rbac.authorization.k8s.io "refract-hub" deleted`,
	})
	w.gone("ValidatingWebhookConfiguration", &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refract-policies"}})
	w.kubectl(ofUsers, "apply", "-f", "-")
	converted()

	w.kubectl("", "delete", "validatingadmissionpolicybinding", "refract-conversion-in-use")
	harness.Eventually(t, "the conversion can be deleted nevertheless", func(context.Context) error {
		_, err := w.KubectlSays(site, manifest, "delete", "-f", "-", "--wait=false", "--ignore-not-found")
		return err
	})
	w.gone("ValidatingAdmissionPolicy", &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refract-conversion-in-use"}})
}

func namespaceOf(name string) client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// everything returns all objects of the cluster as YAML, by name, without fields that change by themselves.
func (w *world) everything() map[string]string {
	w.t.Helper()
	cfg, err := w.Config(site)
	if err != nil {
		w.t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			// Objects of these kinds change by themselves.
			if !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"Event", "Lease", "ComponentStatus", "Node", "CSINode"}, r.Kind) {
				continue
			}
			maps.Copy(all, w.objectsOf(gv.WithKind(r.Kind)))
		}
	}
	return all
}

func (w *world) objectsOf(kind schema.GroupVersionKind) map[string]string {
	w.t.Helper()
	found := &unstructured.UnstructuredList{}
	kind.Kind += "List"
	found.SetGroupVersionKind(kind)
	if err := w.client.List(w.t.Context(), found); err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for i := range found.Items {
		o := &found.Items[i]
		name := o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		o.SetGeneration(0)
		delete(o.Object, "status")
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			w.t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// TestUninstallConverted: an uninstallation keeps the conversion, and it works, as long as objects need it.
func TestUninstallConverted(t *testing.T) {
	t.Parallel()
	w := begin(t, 1)
	w.kubectl(w.must("install", "--export", "--propagation", "--conversion", "--image", image), "apply", "-f", "-")
	w.kubectl(wired, "apply", "-f", "-")
	w.kubectl("{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, namespace: default}}", "create", "--validate=false", "-f", "-")
	stored := func(versions string) {
		w.kubectl("", "patch", "crd", "widgets.example.com", "--subresource=status", "--type=merge", `-p={"status":{"storedVersions":`+versions+`}}`)
	}
	stays := func(reason, why string, args ...string) {
		t.Helper()
		out, code := w.refract(append([]string{"uninstall"}, args...)...)
		if code != 1 || !strings.Contains(out, "customresourcedefinition widgets.example.com is still converted, by service kube-admiral-system/refract-conversion, which stays: "+why) {
			t.Errorf("%s\nwant exit code 1 and %q, got %d\n%s", reason, why, code, out)
		}
		if out := w.kubectl("", "get", "deployments", "-n", system, "-o", "name"); out != "deployment.apps/refract-conversion\n" {
			t.Errorf("%s\nwant only the conversion to stay, got\n%s", reason, out)
		}
		if out := w.kubectl("", "get", "clusterrolebindings", "-l", "app.kubernetes.io/part-of=refract", "-o", "name"); !strings.Contains(out, "/refract-conversion\n") ||
			strings.Contains(out, "refract-hub") {
			t.Errorf("%s\nwant the rights of the conversion to stay, got\n%s", reason, out)
		}
	}
	stays("Both versions are served.", "its versions v1, v2 are in use")
	stored(`["v1","v2"]`)
	stays("An object may be stored in another version.", "objects may be stored in v1, v2: refract crd migrate widgets.example.com", "--unwire")
	stored(`["v1"]`)
	out := w.must("uninstall", "--unwire")
	harness.WantAll(t, "The definition has no conversion webhook any more.", out,
		[]string{"customresourcedefinition widgets.example.com is no longer converted", "Refract is removed from the cluster"})
	if got := w.kubectl("", "get", "widgets.v2.example.com", "-n", "default", "-o", "name"); got != "widget.example.com/a\n" {
		t.Errorf("want objects readable in both versions, got %q", got)
	}
	w.gone("namespace", namespaceOf(system))
}
