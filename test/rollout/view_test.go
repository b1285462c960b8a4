package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/revision"
	"refract.dev/test/harness"
)

// TestViewGuesses: a user with the role view on the whole hub reads all permitted objects, and tries to confirm every
// possible PIN with them. The objects must not reveal the current or a former PIN of a Secret, with or without a
// rollout policy.
func TestViewGuesses(t *testing.T) {
	ns := namespace(t)
	const (
		secret          = "{apiVersion: v1, kind: Secret, metadata: {name: NAME, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere LABEL}}, stringData: {pin: \"PIN\"}}"
		governed, plain = ", refract.dev/rollout-policy-name: careful", ""
	)
	made := func(name, label, pin string) string {
		return strings.NewReplacer("NAME", name, "LABEL", label, "PIN", pin).Replace(secret)
	}
	apply(t, ns, shop, careful, made("door", governed, "4711"), made("gate", plain, "0815"), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer-NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer-NS}]
`)
	t.Cleanup(func() { kubectl(t, "hub", "", "delete", "clusterrolebinding", "viewer-"+ns) })
	status := func(record, want string) {
		t.Helper()
		harness.Eventually(t, record+" is "+want, func(context.Context) error {
			got, err := env.Kubectl("hub", "", "get", "--namespace="+ns, "propagation", record, "-o", `jsonpath={.status.rollout.phase} {.status.rollout.waves[*].done} {.status.synced}`)
			if err == nil && !strings.HasPrefix(got, want) {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
	}
	status("door.secrets", "Complete")
	status("gate.secrets", "  6")
	apply(t, ns, made("door", governed, "1234"))
	status("door.secrets", "Waiting 1")
	var seen string
	harness.Eventually(t, "the viewer reads the reports, the revisions and the events", func(ctx context.Context) error { // Roles are aggregated later.
		var err error
		if seen, err = seenBy(ctx, "viewer-"+ns); err != nil {
			return err
		}
		for _, part := range []string{`"name":"door.secrets"`, `"name":"gate.secrets"`, `"` + refractv1alpha1.RevisionLabel + `"`, "RolloutBegan", `"lastGood"`} {
			if !strings.Contains(seen, part) {
				return fmt.Errorf("the user's output has no %s", part)
			}
		}
		return nil
	})
	for _, name := range []string{"door", "gate"} {
		if found := guessedFrom(t, seen, ns, name); len(found) > 0 {
			t.Errorf("a trial of all PINs against %s finds %v", name, found)
		}
		mark, err := env.Kubectl("member-2", "", "get", "--namespace="+ns, "secret", name, "-o", `go-template={{index .metadata.annotations "`+refractv1alpha1.AppliedAnnotation+`"}}`)
		if err != nil || len(mark) < shortest || strings.Contains(seen, mark[:shortest]) {
			t.Errorf("want the mark of the copy of %s unreadable, got %q, %v", name, mark, err)
		}
	}
}

// shortest is the number of digits of a hash from which a match is not a coincidence.
const shortest = 12

// seenBy returns all objects of the hub that a user can read, as JSON.
func seenBy(ctx context.Context, user string) (string, error) {
	cfg, err := env.Config("hub")
	if err != nil {
		return "", err
	}
	types, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return "", err
	}
	lists, err := types.ServerPreferredResources()
	if err != nil {
		return "", err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	as, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	var all []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return "", err
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			objects, err := as.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			switch {
			case apierrors.IsForbidden(err):
				continue
			case err != nil:
				return "", fmt.Errorf("listing %s: %w", r.Name, err)
			case r.Name == "secrets":
				return "", errors.New("the user can read Secrets, so the test shows nothing")
			}
			text, err := json.Marshal(objects)
			if err != nil {
				return "", err
			}
			all = append(all, string(text))
		}
	}
	return strings.Join(all, "\n"), nil
}

// guessedFrom tries all PINs for a Secret, and returns the PINs that a text reveals.
func guessedFrom(t *testing.T, text, ns, name string) (found []string) {
	t.Helper()
	var is unstructured.Unstructured
	if err := json.Unmarshal([]byte(kubectl(t, "hub", "", "get", "--namespace="+ns, "secret", name, "-o", "json")), &is.Object); err != nil {
		t.Fatal(err)
	}
	for n := range 10000 {
		pin := fmt.Sprintf("%04d", n)
		value := base64.StdEncoding.EncodeToString([]byte(pin))
		if err := unstructured.SetNestedField(is.Object, value, "data", "pin"); err != nil {
			t.Fatal(err)
		}
		part, err := revision.ObjectPart(&is)
		if err != nil {
			t.Fatal(err)
		}
		data, err := part.Encode()
		if err != nil {
			t.Fatal(err)
		}
		digests := []string{strings.TrimPrefix(part.Name, "refract-"), revision.Of(part.Name, 0, nil).Name}
		for _, plain := range []string{pin, value, part.Name, string(data)} {
			sum := sha256.Sum256([]byte(plain))
			digests = append(digests, hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:]))
		}
		if slices.ContainsFunc(digests, func(digest string) bool { return strings.Contains(text, digest[:shortest]) }) {
			found = append(found, pin)
		}
	}
	return found
}
