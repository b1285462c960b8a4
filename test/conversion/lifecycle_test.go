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

// manager is who writes spec.conversion.
const manager = "refract-conversion"

// field returns the entry of v1alpha1 for a place in it, or in the hub.
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

// backwards is a policy that brings steps back in the wrong order, which only shows when
// nothing is kept.
func backwards(spec *refractv1alpha1.ConversionPolicySpec) {
	field(spec, "spec.script").ToSpoke = `value.reverse().join(",")`
}

func forwards(spec *refractv1alpha1.ConversionPolicySpec) {
	field(spec, "spec.script").ToSpoke = `value.join(",")`
}

// TestLifecycle is the life of a policy, with all that can happen to it: a definition is
// never wired to a policy that is not good, and what was good once goes on.
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
		t.Errorf("A policy that loses something was wired: %s", asJSON(c))
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
	s.wantSpec("The last good policy goes on.", v1, "w", widgets["old"][v1])

	s.must(s.replicas.kill(t.Context()))
	t.Cleanup(func() { s.must(s.replicas.restore(context.WithoutCancel(t.Context()))) })
	_, err = s.tryGet(t.Context(), v1, "w")
	harness.WantStatus(s.T, "Nobody converts.", err, 500, "conversion webhook for "+s.group+"/"+alpha+", Kind=Widget failed: Post \""+s.front.url()+path(s.crd)+"?timeout=30s\"")
	s.wantSpec("What is stored can be read in its version.", alpha, "w", widgets["old"][alpha])
	s.must(s.patch(alpha, "w", `{"metadata":{"labels":{"written":"meanwhile"}}}`))
	s.must(s.replicas.restore(t.Context()))
	s.until("widgets are converted", func(ctx context.Context) error {
		_, err := s.tryGet(ctx, v1, "w")
		return err
	})
	s.wantSpec("It is the last good policy still.", v1, "w", widgets["old"][v1])
	s.create(v1, "again", widgets["new"][v1])
	s.wantSpec("It is the last good policy still, in both directions.", alpha, "again", widgets["new"][alpha])

	s.undone()
	s.needed(p)
	s.released(p)
}

// wired fails the test unless the definition is, by nothing but spec.conversion.
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

// undone has somebody else change what the API server asks: it is not for long.
func (s *scene) undone() {
	s.Helper()
	for what, edit := range map[string]func(*apiextensionsv1.CustomResourceConversion){
		"nobody is asked": func(c *apiextensionsv1.CustomResourceConversion) {
			*c = apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		},
		"nobody is trusted": func(c *apiextensionsv1.CustomResourceConversion) { c.Webhook.ClientConfig.CABundle = nil },
		"it is another review": func(c *apiextensionsv1.CustomResourceConversion) {
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

// needed fails the test unless a policy that serves can neither be deleted nor step back.
func (s *scene) needed(p *refractv1alpha1.ConversionPolicy) {
	s.Helper()
	harness.WantStatus(s.T, "Two versions are stored or served.", s.api.Delete(s.Context(), p), 409, "needed by ", s.crd)
	err := s.amend(p.Name, func(spec *refractv1alpha1.ConversionPolicySpec) { spec.Mode = refractv1alpha1.ConversionShadow })
	harness.WantStatus(s.T, "Nobody would serve.", err, 409, "needed by ")
	another := s.policy("widget")
	another.Name += "-another"
	harness.WantStatus(s.T, "One serves already.", s.api.Create(s.Context(), another), 409, "ConversionPolicy "+p.Name+" converts the objects of "+s.crd+" already")

	// A finalizer is the second guard, should the webhook not be asked.
	is := &refractv1alpha1.ConversionPolicy{}
	s.must(s.api.Get(s.Context(), client.ObjectKeyFromObject(p), is))
	if diff := cmp.Diff([]string{refractv1alpha1.ConversionFinalizer}, is.Finalizers); diff != "" {
		s.Errorf("finalizers: -want, +got:\n%s", diff)
	}
}

// released takes all versions away but the one that is stored: then nobody needs the
// policy.
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
	s.wantSpec("What is stored is there.", alpha, "w", widgets["old"][alpha])
}

// TestRotation renews the authority and the certificate while widgets are read in the
// other version all the time: not one of them is missed.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := beginAlone(t, "widget")
	s.serve(s.policy("widget"))
	s.create(alpha, "w", widgets["old"][alpha])
	s.front.pass(true) // The replicas themselves present what they have.
	defer s.front.pass(false)
	s.until("the API server has other connections than those that were ended", func(ctx context.Context) error {
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
		s.until("more is read", func(context.Context) error {
			if n := reads.Load() - from; n < 50 {
				return fmt.Errorf("%d are", n)
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
			err = errors.New("it is not")
		}
		return err
	})
	if !bytes.HasPrefix(next[pki.Authorities], old[pki.Authorities]) {
		t.Fatal("the old authority is not trusted any more")
	}
	more()
	secret, err = s.secret(t.Context())
	s.must(err)
	secret.Data[pki.ServingCertificate], secret.Data[pki.ServingKey] = []byte{}, []byte{} // The type of the Secret has them.
	s.must(s.api.Update(t.Context(), secret))
	s.until("there is another certificate", func(ctx context.Context) error {
		secret, err := s.secret(ctx)
		if is := secret.Data[pki.ServingCertificate]; err == nil && (len(is) == 0 || bytes.Equal(is, next[pki.ServingCertificate])) {
			err = errors.New("there is not")
		}
		return err
	})
	more()
	cancel()
	readers.Wait()
	s.wantSpec("after all", v1, "w", widgets["old"][v1])
}

// TestPolicyFirst has a policy wait for its definition, and serve it again when it was
// gone.
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

// TestRefused writes policies that do not fit the definition: the API server refuses
// them, and says where and why.
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
		t.Errorf("A policy that was refused was wired: %s", asJSON(c))
	}
}

// TestShadow compares a policy with the one that serves: what differs is counted, and
// nobody but the operator notices.
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
		s.wantSpec("The shadow has no say.", v1, fmt.Sprint("sized-", i), `{size: Small, retries: 3}`)
		s.wantSpec("The shadow has no say.", v1, fmt.Sprint("plain-", i), `{caption: T, retries: 3}`)
	}
	s.until("they are counted", func(ctx context.Context) error {
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
			t.Errorf("no replica counts what is %s", result)
		}
	}

	// The one that serves cannot go, the shadow can at any time.
	s.must(s.api.Delete(t.Context(), shadow))
	s.until("the shadow is gone", func(ctx context.Context) error { return s.gone(ctx, shadow) })
	s.wantSpec("Nothing has changed.", v1, "sized-0", `{size: Small, retries: 3}`)
}

// TestTakeOver has a policy take over from a webhook of somebody else: not before it is
// told to, and without a moment in which nobody converts.
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
		t.Errorf("It was taken over unasked: %s", asJSON(c))
	}
	annotate := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, refractv1alpha1.TakeOverAnnotation)
	s.must(s.api.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(annotate))))
	s.untilReady(p.Name)
	s.untilConverted()
	s.wired()
}

// TestEqualSchemas: versions with one schema mean the opposite by a boolean. The policy is needed
// as any other is: without it the API server would give out what is stored.
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
	harness.WantStatus(t, "The versions differ in what they mean.", s.api.Delete(t.Context(), p), 409, "needed by ", "spec.spokes[0].fields[0] changes values")
	s.wantSpec("It is converted as before.", v1, "full", "{open: false}")
	s.wired()

	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) { version(crd, alpha).Served = false })
	s.until("the policy can be deleted", func(ctx context.Context) error { return s.api.Delete(ctx, p) })
	s.until("it is gone", func(ctx context.Context) error { return s.gone(ctx, p) })
	s.wantSpec("What is stored is there.", v1, "full", "{open: false}")
}
