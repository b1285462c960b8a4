package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
	"refract.dev/test/node/cluster"
)

// leave tests that an uninstallation removes everything except a conversion that objects need, and that a new
// installation uses the remaining objects.
func leave(t *testing.T) {
	t.Helper()
	out, err := refract(t, "uninstall")
	if err == nil || !strings.Contains(out, "customresourcedefinition sizes.example.com is still converted, by service "+system+"/refract-conversion, which stays") {
		t.Errorf("want the definition named that is still converted, and an error, got %v", err)
	}
	rolledOut(t, "refract-conversion")
	kubectl(t, "", "get", "sizes.v1.example.com", "-A")
	if _, err := refract(t, "uninstall", "--unwire"); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2"} { // The API server calls no webhook any more.
		kubectl(t, "", "get", "sizes."+version+".example.com", "-A")
	}
	harness.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		err := api.Get(ctx, client.ObjectKey{Name: system}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
	writable(t)
	install(t)
	// The policies of users still exist, and take effect again.
	kubectl(t, "", "wait", "--for=condition=Ready", "conversionpolicy/sizes", "--timeout=2m")
}

// manifestsDeleted tests a deletion of the manifests: no write is blocked, and injected pods continue to run. The
// conversion stays, because objects need it, until an administrator confirms its removal.
func manifestsDeleted(t *testing.T) {
	t.Helper()
	// The deletion of the namespace with the credentials of members takes long, so kubectl does not wait.
	remove := func(part string) (string, error) {
		return node.Env.KubectlSays("hub", "", "delete", "--ignore-not-found", "--wait=false", "-k", filepath.Join(root(t), "config", "install", part))
	}
	for _, part := range []string{"", "injection", "conversion"} {
		if out, err := remove(part); err == nil || !strings.Contains(out, "ConversionPolicy sizes converts sizes.example.com") {
			t.Errorf("%s: want the conversion to stay, got %v\n%s", part, err, out)
		}
	}
	converts(t)
	kubectl(t, "", "delete", "validatingadmissionpolicybinding", "refract-conversion-in-use")
	for _, part := range []string{"", "injection", "conversion"} {
		harness.Eventually(t, "the remaining objects can be deleted", func(context.Context) error {
			_, err := remove(part)
			return err
		})
	}
	deletedByHand(t)
}

// converts tests that the API server calls only the conversion webhook, and that custom resources are readable in every
// version.
func converts(t *testing.T) {
	t.Helper()
	creatable(t, map[string]string{
		"an OverridePolicy": wrongOverride, "a ServiceInjectionPolicy": wrongInjection, "a pod": onePod, "a Service": oneService, "a custom resource": oneSize,
	})
	rolledOut(t, "refract-conversion")
	for _, version := range []string{"v1", "v2"} {
		kubectl(t, "", "get", "sizes."+version+".example.com", "-A")
	}
}

// deletedByHand tests the state after a manual deletion of the manifests: all writes succeed as before the
// installation. The CRDs still name the conversion webhook. refract check reports this, and refract uninstall corrects
// it.
func deletedByHand(t *testing.T) {
	t.Helper()
	writable(t)
	harness.Eventually(t, "it is gone", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := api.List(ctx, list, client.InNamespace(system)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("there are pods: %s", states(list))
		}
		return nil
	})
	kubectl(t, "", "get", "sizes.v1.example.com", "-A") // In the storage version, reads need no conversion.
	out, err := refract(t, "check")
	if err == nil || !strings.Contains(out, "no webhook answers the API server: sizes.example.com (service "+system+"/refract-conversion)") {
		t.Errorf("want check to name the definition that is still converted, got %v", err)
	}
	if strings.Contains(out, "has left") {
		t.Error("want no other remaining objects")
	}
	// For some seconds the leader's Lease looks like that of a running replica outside of the cluster, and uninstall
	// fails.
	harness.Eventually(t, "the conversion is removed", func(context.Context) error {
		_, err := refract(t, "uninstall", "--unwire")
		return err
	})
	for _, version := range []string{"v1", "v2"} {
		kubectl(t, "", "get", "sizes."+version+".example.com", "-A")
	}
}

// writable waits, for at most a minute, until the API server accepts each kind of write that Refract would have
// reviewed: policies that Refract would reject, pods, Services, and custom resources in their stored version.
func writable(t *testing.T) {
	t.Helper()
	creatable(t, map[string]string{
		"an OverridePolicy": wrongOverride, "a ServiceInjectionPolicy": wrongInjection, "a ConversionPolicy": wrongConversion,
		"a pod": onePod, "a Service": oneService, "a custom resource": oneSize,
	})
}

func creatable(t *testing.T, manifests map[string]string) {
	t.Helper()
	begun := time.Now()
	for what, manifest := range manifests {
		harness.Eventually(t, what+" can be written", func(context.Context) error {
			out, err := node.Env.KubectlSays("hub", manifest, "create", "--dry-run=server", "-f", "-")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	took := time.Since(begun)
	t.Logf("all writes succeed after %.1f s", took.Seconds())
	if took > time.Minute {
		t.Error("want all writes to succeed within a minute")
	}
}

// Objects that any user may write.
const (
	onePod = `
apiVersion: v1
kind: Pod
metadata: {generateName: a-, namespace: default, labels: {role: frontend}}
spec: {containers: [{name: web, image: ` + cluster.PodImage + `}]}
`
	oneService = `
apiVersion: v1
kind: Service
metadata: {generateName: a-, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80}]}
`
	oneSize = `
apiVersion: example.com/v1
kind: Size
metadata: {generateName: a-, namespace: default}
spec: {size: 1}
`
)

// helm tests that the chart installs the same objects, can be upgraded and rolled back under load, and can be uninstalled.
func helm(t *testing.T) {
	t.Helper()
	program := filepath.Join(root(t), "bin", "node", "helm")
	does := func(t *testing.T, args ...string) {
		t.Helper()
		if _, err := run(t, program, append(args, "--namespace", system, "--wait", "--timeout", "5m")...); err != nil {
			t.Fatal(err)
		}
	}
	image := func(i int) string {
		registry, rest, _ := strings.Cut(cluster.Images()[i], "/")
		repository, tag, _ := strings.Cut(rest, ":")
		return "image.registry=" + registry + ",image.repository=" + repository + ",image.tag=" + tag
	}
	chart := filepath.Join(root(t), "charts", "refract")
	harness.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		err := api.Get(ctx, client.ObjectKey{Name: system}, &corev1.Namespace{})
		return errors.Join(client.IgnoreNotFound(err), still(err == nil))
	})
	does(t, "install", "refract", chart, "--create-namespace", "--set", "propagation.enabled=true,injection.enabled=true,conversion.enabled=true,"+image(0))
	allRolledOut(t, cluster.Images()[0])
	// Helm waits for pods, but not until kube-proxy routes to them.
	harness.Eventually(t, "refract check reports no fault", func(context.Context) error {
		_, err := refract(t, "check")
		return err
	})
	if out, err := refract(t, "uninstall"); err == nil || !strings.Contains(out, "Helm") {
		t.Errorf("want refract uninstall to leave Helm's objects to Helm, got %v", err)
	}
	undisturbed(t, []part{
		{"Upgrade", func(t *testing.T) {
			t.Helper()
			does(t, "upgrade", "refract", chart, "--reuse-values", "--set", image(1))
			allRolledOut(t, cluster.Images()[1])
		}},
		{"Rollback", func(t *testing.T) {
			t.Helper()
			does(t, "rollback", "refract", "1")
			allRolledOut(t, cluster.Images()[0])
		}},
	})
	out, err := run(t, program, "uninstall", "refract", "--namespace", system, "--wait", "--timeout", "1m")
	if err == nil || !strings.Contains(out, "failed to delete release") { // Helm does not print the reason.
		t.Errorf("want the conversion to stay, got %v\n%s", err, out)
	}
	out, err = node.Env.KubectlSays("hub", "", "delete", "deployment", "refract-conversion", "-n", system, "--dry-run=server")
	if err == nil || !strings.Contains(out, "ConversionPolicy sizes converts sizes.example.com") {
		t.Errorf("want kubectl to print the reason, got %v\n%s", err, out)
	}
	converts(t)
	kubectl(t, "", "delete", "validatingadmissionpolicybinding", "refract-conversion-in-use")
	harness.Eventually(t, "the rest of the installation can be removed", func(context.Context) error {
		_, err := run(t, program, "uninstall", "refract", "--namespace", system, "--wait", "--timeout", "5m")
		return err
	})
	deletedByHand(t)
}

func still(there bool) error {
	if there {
		return errors.New("it is there")
	}
	return nil
}
