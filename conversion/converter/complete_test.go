package converter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/verify"
)

// withField adds a field to spec in one version of the definition, and sets the required fields to required, if it is
// not empty.
func withField(t *testing.T, crd *unstructured.Unstructured, version int, name string, required ...any) {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	of := versions[version].(map[string]any)
	at := []string{"schema", "openAPIV3Schema", "properties", "spec"}
	if err := unstructured.SetNestedField(of, "string", append(at, "properties", name, "type")...); err != nil {
		t.Fatal(err)
	}
	if len(required) > 0 {
		if err := unstructured.SetNestedSlice(of, required, append(at, "required")...); err != nil {
			t.Fatal(err)
		}
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
}

// changed changes the definition, and calls Reconcile.
func (k *reconciler) changed(t *testing.T, change func(crd *unstructured.Unstructured)) *refractv1alpha1.ConversionPolicy {
	t.Helper()
	_, crd := k.now(t)
	change(crd)
	if err := k.client.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	k.keep(t)
	p, _ := k.now(t)
	return p
}

// said changes the spec of the policy, and calls Reconcile.
func (k *reconciler) said(t *testing.T, change func(spec *refractv1alpha1.ConversionPolicySpec)) *refractv1alpha1.ConversionPolicy {
	t.Helper()
	p, _ := k.now(t)
	change(&p.Spec)
	p.Generation++
	if err := k.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	k.keep(t)
	p, _ = k.now(t)
	return p
}

// convertsTo checks the result for an object of v1 that has the new field. The object must come back unchanged.
func convertsTo(t *testing.T, tab *registry, want string) {
	t.Helper()
	e, _ := tab.look("widgets.example.com")
	object := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":5,"only":"x"}}`
	there, err := e.program.engine.Convert([]byte(object), "example.com/v2")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(there), `"spec":`+want+`}`) {
		t.Errorf("In v2 it is %s, want %s", there, want)
	}
	back, err := e.program.engine.Convert(there, "example.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read(t, object).Object, read(t, string(back)).Object); diff != "" {
		t.Errorf("It comes back as another one: -want, +got:\n%s", diff)
	}
}

// TestNewField adds a field to one version of the definition. The policy does not name the field. Until it does, this
// replica, other replicas and a restarted replica must keep the value.
func TestNewField(t *testing.T) {
	k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
	k.keep(t)
	p := k.changed(t, func(crd *unstructured.Unstructured) { withField(t, crd, 0, "only") })
	is(t, p, refractv1alpha1.ConversionCompiled, reasonInvalid, "v1 has spec.only")
	is(t, p, refractv1alpha1.ConversionVerified, reasonVerified, "")
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier,
		"New places are kept in the annotation refract.dev/complement until the policy names them: spec.only of v1.")
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "Compiled (Invalid)")
	if diff := cmp.Diff([]refractv1alpha1.KeptField{{Version: "v1", Spoke: "spec.only"}}, p.Status.Served.Kept); diff != "" {
		t.Errorf("Kept: -want, +got:\n%s", diff)
	}
	const there = `{"capacity":5}`
	convertsTo(t, k.registry, there)

	was := p.ResourceVersion
	k.keep(t)
	if p, _ = k.now(t); p.ResourceVersion != was {
		t.Errorf("The status is written again: %+v", p.Status)
	}

	_, crd := k.now(t)
	next := keeping(t, without(crd), without(p))
	next.keep(t)
	after, _ := next.now(t)
	if diff := cmp.Diff(p.Status.Served, after.Status.Served); diff != "" {
		t.Errorf("The next replica serves something else: -was, +is:\n%s", diff)
	}
	convertsTo(t, next.registry, there)
	follower := newRegistry(logr.Discard())
	if err := follower.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*p}); err != nil {
		t.Fatal(err)
	}
	convertsTo(t, follower, there)

	p = k.changed(t, func(crd *unstructured.Unstructured) { withField(t, crd, 1, "too") })
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "spec.only of v1; spec.too, which v1 does not have.")
	convertsTo(t, k.registry, there)

	p = k.said(t, func(spec *refractv1alpha1.ConversionPolicySpec) {
		spec.Spokes[0].Fields = append(spec.Spokes[0].Fields, refractv1alpha1.FieldConversion{Hub: "spec.too", Spoke: "spec.only"})
	})
	is(t, p, refractv1alpha1.ConversionReady, reasonServing, "generation 2")
	if p.Status.Served.Kept != nil {
		t.Errorf("There is still kept %+v", p.Status.Served.Kept)
	}
	convertsTo(t, k.registry, `{"capacity":5,"too":"x"}`)
}

// without returns a copy of an object without a resourceVersion, to create it in another cluster.
func without[T client.Object](object T) T {
	out := object.DeepCopyObject().(T)
	out.SetResourceVersion("")
	return out
}

// TestNewFieldInBoth adds the kept field to the other version as well, while the present spec of the policy does not
// compile. The last verified spec then needs no entry for the field.
func TestNewFieldInBoth(t *testing.T) {
	k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
	k.keep(t)
	k.changed(t, func(crd *unstructured.Unstructured) { withField(t, crd, 0, "only") })
	p := k.said(t, func(spec *refractv1alpha1.ConversionPolicySpec) { spec.Spokes[0].Fields[0].Hub = "spec.nowhere" })
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "until generation 2 is accepted. New places are kept")
	convertsTo(t, k.registry, `{"capacity":5}`)
	p = k.changed(t, func(crd *unstructured.Unstructured) { withField(t, crd, 1, "only") })
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "until generation 2 is accepted. Compiled (Invalid)")
	if p.Status.Served.Generation != 1 || p.Status.Served.Kept != nil {
		t.Errorf("It serves %+v", p.Status.Served)
	}
	convertsTo(t, k.registry, `{"only":"x","capacity":5}`)
}

// TestNewFieldAsNow checks that status.served stays unchanged if the new field cannot be kept.
func TestNewFieldAsNow(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(crd *unstructured.Unstructured)
	}{
		"Required": {"A required field of one version has no value in objects of the other.", func(crd *unstructured.Unstructured) { withField(t, crd, 0, "only", "only") }},
		"LawBroken": {"An object that is valid in v1 would be invalid in v2.", func(crd *unstructured.Unstructured) {
			withField(t, crd, 0, "only")
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			_ = unstructured.SetNestedField(versions[1].(map[string]any), int64(3),
				"schema", "openAPIV3Schema", "properties", "spec", "properties", "capacity", "maximum")
			_ = unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
		}},
		"AnotherFinding": {"A removed version is an error that additional entries cannot repair.", func(crd *unstructured.Unstructured) {
			withField(t, crd, 1, "only")
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			_ = unstructured.SetNestedSlice(crd.Object, versions[1:], "spec", "versions")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
			k.keep(t)
			before, _ := k.now(t)
			p := k.changed(t, tc.change)
			is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "previous schemas of the definition")
			if diff := cmp.Diff(before.Status.Served, p.Status.Served); diff != "" {
				t.Errorf("%s\nIt serves something else: -was, +is:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNewFieldLawBroken checks that the completed spec stays in use if the new spec names the new field but violates a
// law.
func TestNewFieldLawBroken(t *testing.T) {
	k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
	k.keep(t)
	before, _ := k.now(t)
	k.changed(t, func(crd *unstructured.Unstructured) { withField(t, crd, 0, "only") })
	p := k.said(t, func(spec *refractv1alpha1.ConversionPolicySpec) {
		f := &spec.Spokes[0].Fields[0]
		f.ToHub, f.ToSpoke = "value + 1", "value - 2"
		spec.Spokes[0].Fields = append(spec.Spokes[0].Fields, refractv1alpha1.FieldConversion{Spoke: "spec.only", Removed: &refractv1alpha1.OneSided{}})
	})
	is(t, p, refractv1alpha1.ConversionVerified, reasonBroken, "")
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "New places are kept")
	if p.Status.Served.Generation != before.Status.Served.Generation {
		t.Errorf("It serves generation %d", p.Status.Served.Generation)
	}
	convertsTo(t, k.registry, `{"capacity":5}`)
}

// TestCompletedWithNothing has a changed definition that needs no additional entries, and a spec that violates a law.
// The method complete must not return that spec.
func TestCompletedWithNothing(t *testing.T) {
	k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
	k.keep(t)
	before, crd := k.now(t)
	for version := range 2 {
		withField(t, crd, version, "both")
	}
	c := k.compiler.compile(before, reduced(crd))
	k.verifier.verdicts[before.UID] = verdict{about: c.about, report: &verify.Report{Laws: []verify.LawResult{{Violations: []verify.Violation{{Law: "Valid"}}}}}}
	p := k.changed(t, func(crd *unstructured.Unstructured) {
		for version := range 2 {
			withField(t, crd, version, "both")
		}
	})
	is(t, p, refractv1alpha1.ConversionVerified, reasonBroken, "Valid")
	if diff := cmp.Diff(before.Status.Served, p.Status.Served); diff != "" {
		t.Errorf("It serves something else: -was, +is:\n%s", diff)
	}
}

// TestNewFieldWaits checks that a completed spec waits while other policies are being verified, and is used only after
// its own verification.
func TestNewFieldWaits(t *testing.T) {
	k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
	k.keep(t)
	for range verifying {
		k.verifier.busy <- struct{}{}
	}
	k.changed(t, func(crd *unstructured.Unstructured) { withField(t, crd, 0, "only") })
	if again := k.keep(t); again != verifyWait {
		t.Errorf("It looks again in %s", again)
	}
	p, _ := k.now(t)
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "previous schemas of the definition")
	for range verifying {
		<-k.verifier.busy
	}
	k.keep(t)
	p, _ = k.now(t)
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "spec.only of v1.")
	convertsTo(t, k.registry, `{"capacity":5}`)
}

func TestStranded(t *testing.T) {
	inHub := refractv1alpha1.KeptField{Version: "v1", Hub: "spec.capacity"}
	inSpoke := refractv1alpha1.KeptField{Version: "v1", Spoke: "spec.size"}
	oneSided := strings.Replace(other, "Shadow", "Serve", 1)
	cases := map[string]struct {
		reason string
		kept   refractv1alpha1.KeptField
		next   string
		stored []any
		want   int
	}{
		"Hub":         {"Objects in v1 have the hub's value in the annotation.", inHub, mapped, []any{"v1"}, 1},
		"HubItself":   {"Objects in the hub version have the value themselves.", inHub, mapped, []any{"v2"}, 0},
		"Spoke":       {"Objects in v2 have the spoke's value in the annotation.", inSpoke, mapped, []any{"v1", "v2"}, 1},
		"SpokeItself": {"Objects in the spoke version have the value themselves.", inSpoke, mapped, []any{"v1"}, 0},
		"KeptOn":      {"An entry for the kept field finds the value in the annotation.", inHub, oneSided, []any{"v1"}, 0},
		"SpokeKeptOn": {"An entry for the kept field finds the value in the annotation.", inSpoke, oneSided, []any{"v2"}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			was, crd := serving(t, policyFrom(t, mapped, "widgets", 1)), read(t, widgets)
			was.Status.Served.Kept = []refractv1alpha1.KeptField{tc.kept}
			if err := unstructured.SetNestedSlice(crd.Object, tc.stored, "status", "storedVersions"); err != nil {
				t.Fatal(err)
			}
			got := stranded(was, policyFrom(t, tc.next, "widgets", 1), crd)
			if len(got) != tc.want {
				t.Errorf("%s\nstranded(): got %q, want %d", tc.reason, got, tc.want)
			}
		})
	}
	if got := stranded(nil, policyFrom(t, mapped, "widgets", 1), read(t, widgets)); got != nil {
		t.Errorf("stranded(): got %q of a new policy", got)
	}
}

func TestKeptAway(t *testing.T) {
	many := make([]refractv1alpha1.KeptField, 0, 9)
	for i := range cap(many) {
		many = append(many, refractv1alpha1.KeptField{Version: "v1", Spoke: fmt.Sprintf("spec.f%d", i)})
	}
	long := []refractv1alpha1.KeptField{{Version: "v1", Hub: "spec." + strings.Repeat("a", 1000)}}
	cases := map[string]struct {
		reason string
		kept   []refractv1alpha1.KeptField
		end    string
	}{
		"None": {"Without kept places there is no sentence.", nil, ""},
		"Many": {"A message names only a few places.", many, "spec.f3 of v1; spec.f4 of v1; 4 more."},
		"Long": {"A place that is too long for the message is only counted.", long, "names them: 1 more."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := keptAway(tc.kept); !strings.HasSuffix(got, tc.end) || tc.kept == nil && got != "" {
				t.Errorf("%s\nkeptAway(): got %q, want %q at the end", tc.reason, got, tc.end)
			}
		})
	}
}
