package conversion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/kit/webhook/pki"
	"refract.dev/test/harness"
)

// manager is the field manager that writes spec.conversion.
const manager = "refract-conversion"

// field returns the FieldConversion of spoke v1alpha1 whose path in the spoke or in the hub is place.
func field(spec *refractv1alpha1.ConversionPolicySpec, place string) *refractv1alpha1.FieldConversion {
	for i := range spec.Spokes {
		if spec.Spokes[i].Version != alpha {
			continue
		}
		for j := range spec.Spokes[i].Fields {
			if f := &spec.Spokes[i].Fields[j]; f.Spoke == place || f.Hub == place {
				return f
			}
		}
	}
	return nil
}

// backwards changes a policy so that the conversion of steps to the spoke reverses them. Only objects without the
// annotation show this, because the annotation restores the original.
func backwards(spec *refractv1alpha1.ConversionPolicySpec) {
	field(spec, "spec.script").ToSpoke = `value.reverse().join(",")`
}

func forwards(spec *refractv1alpha1.ConversionPolicySpec) {
	field(spec, "spec.script").ToSpoke = `value.join(",")`
}

// TestLifecycle follows a policy through its life. A generation that fails its verification never converts objects. The
// last verified generation continues to convert.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	s := beginAlone(t, "widget")
	p := s.policy("widget", backwards)
	s.must(s.api.Create(t.Context(), p))
	s.untilCondition(p.Name, refractv1alpha1.ConversionCompiled, metav1.ConditionTrue)
	s.untilCondition(p.Name, refractv1alpha1.ConversionVerified, metav1.ConditionFalse, "RoundTrip", "spec.spokes[0].fields[0]")
	s.untilCondition(p.Name, refractv1alpha1.ConversionReady, metav1.ConditionFalse)
	crd, err := s.definition(t.Context())
	s.must(err)
	if c := crd.Spec.Conversion; c.Strategy != apiextensionsv1.NoneConverter || c.Webhook != nil {
		t.Errorf("A policy that loses values is in spec.conversion: %s", asJSON(c))
	}
	for _, m := range crd.ManagedFields {
		if m.Manager == manager {
			t.Errorf("The definition was written: %s", asJSON(m))
		}
	}

	s.must(s.amend(p.Name, forwards))
	s.untilReady(p.Name)
	s.untilConverted()
	s.wired()
	s.create(alpha, "w", widgets["old"][alpha])
	s.wantSpec("It is converted.", v1, "w", widgets["old"][v1])

	s.must(s.amend(p.Name, backwards))
	s.untilCondition(p.Name, refractv1alpha1.ConversionVerified, metav1.ConditionFalse, "RoundTrip")
	s.untilCondition(p.Name, refractv1alpha1.ConversionReady, metav1.ConditionFalse, "generation 2")
	s.wantSpec("The last good generation stays in service.", v1, "w", widgets["old"][v1])

	s.must(s.replicas.kill(t.Context()))
	t.Cleanup(func() { s.must(s.replicas.restore(context.WithoutCancel(t.Context()))) })
	_, err = s.tryGet(t.Context(), v1, "w")
	harness.WantStatus(s.T, "No replica runs.", err, 500, "conversion webhook for "+s.group+"/"+alpha+", Kind=Widget failed: Post \""+s.front.url()+path(s.crd)+"?timeout=30s\"")
	s.wantSpec("Stored objects can be read in their own version.", alpha, "w", widgets["old"][alpha])
	s.must(s.patch(alpha, "w", `{"metadata":{"labels":{"written":"meanwhile"}}}`))
	s.must(s.replicas.restore(t.Context()))
	s.until("widgets are converted", func(ctx context.Context) error {
		_, err := s.tryGet(ctx, v1, "w")
		return err
	})
	s.wantSpec("The last good generation is still in service.", v1, "w", widgets["old"][v1])
	s.create(v1, "again", widgets["new"][v1])
	s.wantSpec("The last good generation is still in service, in both directions.", alpha, "again", widgets["new"][alpha])

	s.undone()
	s.needed(p)
	s.released(p)
}

// wired fails the test unless spec.conversion of the definition names the webhook, and the manager owns no other field.
func (s *scene) wired() {
	s.Helper()
	crd, err := s.definition(s.Context())
	s.must(err)
	url := s.front.url() + path(s.crd)
	secret, err := s.secret(s.Context())
	s.must(err)
	want := &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1", "v1beta1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: secret.Data[pki.Authorities]},
		},
	}
	if diff := cmp.Diff(want, crd.Spec.Conversion); diff != "" {
		s.Errorf("spec.conversion: -want, +got:\n%s", diff)
	}
	var fields strings.Builder
	for _, m := range crd.ManagedFields {
		if m.Manager == manager {
			fields.WriteString(m.FieldsV1.String())
		}
	}
	owns := fields.String()
	if !strings.HasPrefix(owns, `{"f:spec":{"f:conversion":{`) || strings.Contains(owns, "f:versions") {
		s.Errorf("%s owns %s", manager, owns)
	}
}

// undone changes spec.conversion, and waits until the controller has reverted the change.
func (s *scene) undone() {
	s.Helper()
	for what, edit := range map[string]func(*apiextensionsv1.CustomResourceConversion){
		"the strategy is None": func(c *apiextensionsv1.CustomResourceConversion) {
			*c = apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		},
		"the CA bundle is missing": func(c *apiextensionsv1.CustomResourceConversion) { c.Webhook.ClientConfig.CABundle = nil },
		"the version of the review is another": func(c *apiextensionsv1.CustomResourceConversion) {
			c.Webhook.ConversionReviewVersions = []string{"v1beta1"}
		},
	} {
		before, err := s.definition(s.Context())
		s.must(err)
		s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) { edit(crd.Spec.Conversion) })
		s.until(what, func(ctx context.Context) error {
			crd, err := s.definition(ctx)
			if err == nil && cmp.Diff(before.Spec.Conversion, crd.Spec.Conversion) != "" {
				err = fmt.Errorf("spec.conversion is %s", asJSON(crd.Spec.Conversion))
			}
			return err
		})
	}
	s.until("widgets are converted", func(ctx context.Context) error {
		_, err := s.tryGet(ctx, v1, "w")
		return err
	})
}

// needed checks the protection of a policy that converts objects: the API server must reject its deletion, its change
// to mode Shadow, and a second policy for the same CustomResourceDefinition.
func (s *scene) needed(p *refractv1alpha1.ConversionPolicy) {
	s.Helper()
	harness.WantStatus(s.T, "Several versions are stored or served.", s.api.Delete(s.Context(), p), 409, "needed by ", s.crd)
	err := s.amend(p.Name, func(spec *refractv1alpha1.ConversionPolicySpec) { spec.Mode = refractv1alpha1.ConversionShadow })
	harness.WantStatus(s.T, "No policy would be in service.", err, 409, "needed by ")
	another := s.policy("widget")
	another.Name += "-another"
	harness.WantStatus(s.T, "Another policy is in service.", s.api.Create(s.Context(), another), 409, "ConversionPolicy "+p.Name+" converts the objects of "+s.crd+" already")

	// A finalizer protects the policy even without the admission webhook.
	is := &refractv1alpha1.ConversionPolicy{}
	s.must(s.api.Get(s.Context(), client.ObjectKeyFromObject(p), is))
	if diff := cmp.Diff([]string{refractv1alpha1.ConversionFinalizer}, is.Finalizers); diff != "" {
		s.Errorf("finalizers: -want, +got:\n%s", diff)
	}
}

// released stops serving all versions except the stored one. Then the policy is not needed any more.
func (s *scene) released(p *refractv1alpha1.ConversionPolicy) {
	s.Helper()
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		version(crd, beta).Served, version(crd, v1).Served = false, false
	})
	s.until("the policy can be deleted", func(ctx context.Context) error { return s.api.Delete(ctx, p) })
	s.until("it is gone", func(ctx context.Context) error { return s.gone(ctx, p) })
	crd, err := s.definition(s.Context())
	s.must(err)
	if diff := cmp.Diff(&apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}, crd.Spec.Conversion); diff != "" {
		s.Errorf("spec.conversion: -want, +got:\n%s", diff)
	}
	s.wantSpec("Stored objects are unchanged.", alpha, "w", widgets["old"][alpha])
}

// TestRotation renews the certificate authority and the certificate while clients read widgets in the other version. No
// read may fail.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := beginAlone(t, "widget")
	s.serve(s.policy("widget"))
	s.create(alpha, "w", widgets["old"][alpha])
	s.front.pass(true) // The API server must see the replicas' own certificates, not that of the front.
	defer s.front.pass(false)
	s.until("the API server has new connections", func(ctx context.Context) error {
		_, err := s.tryGet(ctx, v1, "w")
		return err
	})

	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var reads atomic.Int64
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_, err := s.tryGet(context.WithoutCancel(ctx), v1, "w")
				if err != nil {
					t.Errorf("Read number %d: %v", reads.Load(), err)
					return
				}
				reads.Add(1)
			}
		})
	}
	more := func() {
		t.Helper()
		from := reads.Load()
		s.until("clients read on", func(context.Context) error {
			if n := reads.Load() - from; n < 50 {
				return fmt.Errorf("%d reads", n)
			}
			return nil
		})
	}
	more()
	secret, err := s.secret(t.Context())
	s.must(err)
	old := secret.Data
	next, err := issue(old)
	s.must(err)
	secret.Data = next
	s.must(s.api.Update(t.Context(), secret))
	s.until("the new authority is trusted beside the old one", func(ctx context.Context) error {
		crd, err := s.definition(ctx)
		if err == nil && !bytes.Equal(crd.Spec.Conversion.Webhook.ClientConfig.CABundle, next[pki.Authorities]) {
			err = errors.New("the CA bundle is not the new one")
		}
		return err
	})
	if !bytes.HasPrefix(next[pki.Authorities], old[pki.Authorities]) {
		t.Fatal("the old authority is not trusted any more")
	}
	more()
	secret, err = s.secret(t.Context())
	s.must(err)
	secret.Data[pki.ServingCertificate], secret.Data[pki.ServingKey] = []byte{}, []byte{} // The type of the Secret requires both keys.
	s.must(s.api.Update(t.Context(), secret))
	s.until("a new certificate is issued", func(ctx context.Context) error {
		secret, err := s.secret(ctx)
		if is := secret.Data[pki.ServingCertificate]; err == nil && (len(is) == 0 || bytes.Equal(is, next[pki.ServingCertificate])) {
			err = errors.New("there is no new certificate")
		}
		return err
	})
	more()
	cancel()
	readers.Wait()
	s.wantSpec("after all", v1, "w", widgets["old"][v1])
}

// TestPolicyFirst: a policy without a definition waits for it. It converts again after the definition was deleted and
// created again.
func TestPolicyFirst(t *testing.T) {
	t.Parallel()
	s := begin(t, "crate")
	p := s.policy("crate")
	crd, err := s.definition(t.Context())
	s.must(err)
	again := crd.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Name: crd.Name}
	s.must(s.api.Delete(t.Context(), crd))
	s.until("the definition is gone", func(ctx context.Context) error { return s.gone(ctx, crd) })
	s.must(s.api.Create(t.Context(), p))
	s.untilCondition(p.Name, refractv1alpha1.ConversionReady, metav1.ConditionFalse)
	s.untilCondition(p.Name, refractv1alpha1.ConversionCompiled, metav1.ConditionFalse, s.crd)
	served := func(reason string) {
		t.Helper()
		s.must(s.api.Create(t.Context(), again.DeepCopy()))
		s.untilReady(p.Name)
		s.untilServed()
		s.untilConverted()
		s.create(alpha, "c", `{bottles: [beer, beer]}`)
		s.wantSpec(reason, v1, "c", `{bottles: [{name: beer, quantity: 2}]}`)
	}
	served("It is converted.")

	s.must(s.api.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: again.ObjectMeta}))
	s.until("the definition is gone", func(ctx context.Context) error { return s.gone(ctx, again.DeepCopy()) })
	s.untilCondition(p.Name, refractv1alpha1.ConversionReady, metav1.ConditionFalse, s.crd)
	served("It is converted as before.")
}

// TestRefused writes policies that do not fit the definition. The API server rejects them with the field and the
// reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget")
	add := func(f refractv1alpha1.FieldConversion) func(*refractv1alpha1.ConversionPolicySpec) {
		return func(spec *refractv1alpha1.ConversionPolicySpec) {
			spec.Spokes[1].Fields = append(spec.Spokes[1].Fields, f)
		}
	}
	cases := map[string]struct {
		edit func(*refractv1alpha1.ConversionPolicySpec)
		want []string
	}{
		"Label": {
			add(refractv1alpha1.FieldConversion{Hub: "metadata.labels.x", Spoke: "spec.note"}),
			[]string{"spec.spokes[1].fields[4]", "metadata"},
		},
		"Finalizers": {
			add(refractv1alpha1.FieldConversion{Hub: "metadata.finalizers", ToHub: "[]", ToSpoke: "[]", Spoke: "metadata.finalizers"}),
			[]string{"spec.spokes[1].fields[4]", "metadata"},
		},
		"NotCovered": {
			func(spec *refractv1alpha1.ConversionPolicySpec) { spec.Spokes[1].Fields = spec.Spokes[1].Fields[:3] },
			[]string{"spec.spokes[1]", "spec.retries"},
		},
		"Unknown": {
			add(refractv1alpha1.FieldConversion{Hub: "spec.captoin", Spoke: "spec.note"}),
			[]string{"spec.spokes[1].fields[4]", "spec.caption"},
		},
		"Expression": {
			func(spec *refractv1alpha1.ConversionPolicySpec) {
				field(spec, "spec.script").ToSpoke = "value.jion(',')"
			},
			[]string{"spec.spokes[0].fields[0].toSpoke", "column", "jion"},
		},
		"OneWay": {
			func(spec *refractv1alpha1.ConversionPolicySpec) { field(spec, "spec.script").ToSpoke = "" },
			[]string{"toHub and toSpoke go together"},
		},
		"Version": {
			func(spec *refractv1alpha1.ConversionPolicySpec) { spec.Spokes[1].Version = "v2" },
			[]string{"v2", "v1beta1"},
		},
	}
	for name, tc := range cases {
		p := s.policy("widget", tc.edit)
		harness.WantStatus(s.T, name, s.api.Create(t.Context(), p), 422, tc.want...)
	}
	crd, err := s.definition(t.Context())
	s.must(err)
	if c := crd.Spec.Conversion; c.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("A rejected policy is in spec.conversion: %s", asJSON(c))
	}
}

// TestShadow compares a policy in mode Shadow with the policy that converts. Metrics count the differences, and clients
// do not notice the comparison.
func TestShadow(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget")
	s.serve(s.policy("widget"))
	shadow := s.policy("widget", func(spec *refractv1alpha1.ConversionPolicySpec) {
		spec.Mode = refractv1alpha1.ConversionShadow
		sizes := field(spec, "spec.size").Map
		sizes[0].Hub, sizes[1].Hub = sizes[1].Hub, sizes[0].Hub
	})
	shadow.Name += "-shadow"
	s.must(s.api.Create(t.Context(), shadow))
	s.untilReady(shadow.Name)
	for i := range 5 {
		s.create(alpha, fmt.Sprint("sized-", i), `{size: small}`)
		s.create(alpha, fmt.Sprint("plain-", i), `{title: T}`)
		s.wantSpec("The policy in mode Shadow has no effect.", v1, fmt.Sprint("sized-", i), `{size: Small, retries: 3}`)
		s.wantSpec("The policy in mode Shadow has no effect.", v1, fmt.Sprint("plain-", i), `{caption: T, retries: 3}`)
	}
	s.until("the differences are counted", func(ctx context.Context) error {
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(shadow), shadow); err != nil {
			return err
		}
		is := shadow.Status.Shadow
		if is == nil || is.Generation != shadow.Generation || is.Compared < 10 || is.Different < 5 || is.Compared == is.Different ||
			!strings.Contains(is.LastDifference, "spec.size") {
			return fmt.Errorf("status.shadow is %s", asJSON(is))
		}
		return nil
	})
	for _, result := range []string{"same", "different"} {
		lines, err := s.replicas.metrics(t.Context(), "refract_conversion_shadow_total", s.crd, `result="`+result+`"`)
		s.must(err)
		if len(lines) == 0 {
			t.Errorf("no replica counts the result %s", result)
		}
	}

	// A policy that converts cannot be deleted, but a policy in mode Shadow can.
	s.must(s.api.Delete(t.Context(), shadow))
	s.until("the shadow is gone", func(ctx context.Context) error { return s.gone(ctx, shadow) })
	s.wantSpec("The conversion is unchanged.", v1, "sized-0", `{size: Small, retries: 3}`)
}

// TestTakeOver: a policy replaces another conversion webhook only after an annotation requests it. No conversion fails
// meanwhile.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	theirs := "https://127.0.0.1:1/theirs"
	s := begin(t, "crate", func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &theirs},
			},
		}
	})
	p := s.policy("crate")
	s.must(s.api.Create(t.Context(), p))
	s.untilCondition(p.Name, refractv1alpha1.ConversionVerified, metav1.ConditionTrue)
	s.untilCondition(p.Name, refractv1alpha1.ConversionReady, metav1.ConditionFalse, theirs, refractv1alpha1.TakeOverAnnotation)
	crd, err := s.definition(t.Context())
	s.must(err)
	if c := crd.Spec.Conversion; *c.Webhook.ClientConfig.URL != theirs {
		t.Errorf("It was taken over without the annotation: %s", asJSON(c))
	}
	annotate := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, refractv1alpha1.TakeOverAnnotation)
	s.must(s.api.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(annotate))))
	s.untilReady(p.Name)
	s.untilConverted()
	s.wired()
}

// TestEqualSchemas: versions with equal schemas give a boolean different meanings. The policy cannot be deleted while
// two versions are served: without it, the API server would return the stored value in every version.
func TestEqualSchemas(t *testing.T) {
	t.Parallel()
	s := begin(t, "crate", func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			root := crd.Spec.Versions[i].Schema.OpenAPIV3Schema
			root.Properties["spec"] = apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"open": {Type: "boolean"}},
			}
		}
	})
	p := s.policy("crate", func(spec *refractv1alpha1.ConversionPolicySpec) {
		spec.Spokes[0].Fields = []refractv1alpha1.FieldConversion{{Hub: "spec.open", Spoke: "spec.open", ToHub: "!value", ToSpoke: "!value"}}
	})
	s.serve(p)
	s.create(alpha, "full", "{open: true}")
	harness.WantStatus(t, "A value differs in its meaning.", s.api.Delete(t.Context(), p), 409, "needed by ", "spec.spokes[0].fields[0] changes values")
	s.wantSpec("It is converted as before.", v1, "full", "{open: false}")
	s.wired()

	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) { version(crd, alpha).Served = false })
	s.until("the policy can be deleted", func(ctx context.Context) error { return s.api.Delete(ctx, p) })
	s.until("the policy is gone", func(ctx context.Context) error { return s.gone(ctx, p) })
	s.wantSpec("Stored objects are unchanged.", v1, "full", "{open: false}")
}
