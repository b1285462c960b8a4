package conversion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/webhook"
	"refract.dev/test/harness"
)

// process starts a hub with one replica that runs all controllers in one process. The front sends no requests to the
// replica while it is not ready.
func process(t *testing.T) *world {
	t.Helper()
	w := &world{certificates: webhook.SecretName}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.reach(harness.New(t, harness.Topology{CRDs: true})))
	addresses, err := harness.FreePorts(1)
	must(err)
	w.front, err = listen(w.presented, addresses...)
	must(err)
	t.Cleanup(w.front.close)
	w.replicas = &replicas{
		world: w, args: []string{"--propagation", "--injection", "--conversion"}, slots: []*slot{{name: "all", address: addresses[0]}}, probed: true,
	}
	must(w.replicas.restore(t.Context()))
	return w
}

// TestOneProcess restarts a process that propagates, injects and converts. The front sends it no requests before it is
// ready. So the process must become ready without reading objects that it converts itself, or whose webhook does not
// answer.
func TestOneProcess(t *testing.T) {
	t.Parallel()
	w := process(t)
	s := w.begin(t, "widget")
	s.serve(s.policy("widget"))
	s.create(alpha, "w", widgets["old"][alpha])
	s.wantSpec("It is converted.", v1, "w", widgets["old"][v1])

	s.must(w.replicas.stop(syscall.SIGTERM))
	s.forget()
	s.must(w.replicas.restore(t.Context()))
	s.untilRead("w", widgets["old"][v1])
	s.untilPropagated("after")

	dead := w.begin(t, "crate", func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == alpha
		}
		crd.Spec.Conversion = nobody(addressOfNobody)
	})
	defer dead.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) { // The API server could not delete its objects with the dead webhook.
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	dead.create(alpha, "c", `{bottles: [a]}`)
	_, err := dead.tryGet(t.Context(), v1, "c")
	harness.WantStatus(dead.T, "No webhook converts it.", err, 500, addressOfNobody)
	s.must(w.replicas.stop(syscall.SIGTERM))
	s.must(w.replicas.restore(t.Context()))
	s.untilRead("w", widgets["old"][v1])
	s.untilPropagated("again")

	// A process that only propagates waits until it has listed all types, except types whose webhook does not answer.
	// It recognizes those after 40 s, because its client repeats requests that the API server answers with 429.
	all := w.replicas.args
	for _, args := range [][]string{{"--propagation"}, all} {
		s.must(w.replicas.stop(syscall.SIGTERM))
		w.replicas.args = args
		s.must(w.replicas.restore(t.Context()))
	}
}

// addressOfNobody is an address at which no server listens.
const addressOfNobody = "https://127.0.0.1:1"

// nobody returns a conversion by a webhook at a URL.
func nobody(url string) *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url},
		},
	}
}

// forget makes the API server discard its cache of the test's objects by a change of the schema. The API server then
// needs conversions to list the objects again.
func (s *scene) forget() {
	s.Helper()
	most := int64(5)
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, func(p *apiextensionsv1.JSONSchemaProps) { p.MaxLength = &most }, "spec", "legacy")
	})
	s.until("the new schema is in use", func(ctx context.Context) error {
		err := s.api.Create(ctx, s.object(alpha, "probe", `{legacy: too long}`), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("want the object to be invalid: %w", err)
		}
		return nil
	})
}

// untilRead waits until an object can be read in v1, and compares it.
func (s *scene) untilRead(name, want string) {
	s.Helper()
	s.until("objects are converted", func(ctx context.Context) error {
		_, err := s.tryGet(ctx, v1, name)
		return err
	})
	s.wantSpec("It is converted as before.", v1, name, want)
}

// untilPropagated creates an object with a policy label, and waits for its Propagation. The controllers create the
// Propagation only after they have listed the type.
func (s *scene) untilPropagated(name string) {
	s.Helper()
	u := s.object(alpha, name, `{title: a}`)
	u.SetLabels(map[string]string{corev1alpha1.ClusterPropagationPolicyLabel: "everywhere"})
	s.must(s.api.Create(s.Context(), u))
	s.until("there is a Propagation of "+name, func(ctx context.Context) error {
		all := &refractv1alpha1.PropagationList{}
		if err := s.api.List(ctx, all, client.InNamespace(ns)); err != nil {
			return err
		}
		if !slices.ContainsFunc(all.Items, func(p refractv1alpha1.Propagation) bool { return p.Spec.Source.UID == u.GetUID() }) {
			return errors.New("there is no Propagation")
		}
		return nil
	})
}
