package converter

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/hub"
)

// listening is a running server for a registry.
type listening struct{ *httptest.Server }

func (listening) Ready() error { return nil }

func (l listening) Address() string { return l.Listener.Addr().String() }

func (l listening) ClientConfig(path string) *admissionregistrationv1.WebhookClientConfig {
	where := l.URL + path
	return &admissionregistrationv1.WebhookClientConfig{
		URL: &where, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw}),
	}
}

// keeping returns a reconciler for a cluster with these objects.
func keeping(t *testing.T, objects ...client.Object) *reconciler {
	t.Helper()
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&refractv1alpha1.ConversionPolicy{}).
		WithInterceptorFuncs(interceptor.Funcs{Apply: merge}).Build()
	tab := newRegistry(logr.Discard())
	tab.patience = time.Millisecond
	tab.sync()
	s := httptest.NewTLSServer(tab)
	t.Cleanup(s.Close)
	return &reconciler{
		client: c, policies: c, server: listening{s}, registry: tab, recorder: events.NewFakeRecorder(100),
		compiler: newCompiler(), verifier: newVerifier(), log: logr.Discard(), probed: map[string]string{}, wrote: map[string]writing{},
	}
}

// merge replaces a server-side apply by a merge patch, because the fake client's apply removes all fields that are not
// in the request.
func merge(ctx context.Context, c client.WithWatch, applied runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	text, err := json.Marshal(applied)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, u); err != nil {
		return err
	}
	return c.Patch(ctx, u, client.RawPatch(types.MergePatchType, text), client.FieldOwner(FieldManager))
}

// keep calls Reconcile, and returns the delay until the next call.
func (k *reconciler) keep(t *testing.T) time.Duration {
	t.Helper()
	result, err := k.Reconcile(t.Context(), requestFor("widgets.example.com"))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// now returns the current policy and definition.
func (k *reconciler) now(t *testing.T) (*refractv1alpha1.ConversionPolicy, *unstructured.Unstructured) {
	t.Helper()
	p := &refractv1alpha1.ConversionPolicy{}
	if err := k.client.Get(t.Context(), client.ObjectKey{Name: "widgets"}, p); err != nil {
		t.Fatal(err)
	}
	crd, err := definition(t.Context(), k.client, "widgets.example.com")
	if err != nil {
		t.Fatal(err)
	}
	return p, crd
}

// The function is checks a condition of a policy.
func is(t *testing.T, p *refractv1alpha1.ConversionPolicy, condition, reason, message string) {
	t.Helper()
	if c := meta.FindStatusCondition(p.Status.Conditions, condition); c == nil || c.Reason != reason || !strings.Contains(c.Message, message) {
		t.Errorf("%s is %+v, want %s, %q", condition, c, reason, message)
	}
}

// TestReconciler checks that a policy takes effect. The reconciler must repair a damaged status and a changed
// spec.conversion.
func TestReconciler(t *testing.T) {
	k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
	k.keep(t)
	p, crd := k.now(t)
	is(t, p, refractv1alpha1.ConversionReady, reasonServing, "generation 1")
	if !crdConversionOf(crd, k.server.ClientConfig(Path+"widgets.example.com")).current {
		t.Errorf("The API server asks %+v", conversionOf(crd))
	}

	for name, damage := range map[string]func(*refractv1alpha1.ServedConversion){
		"definition": func(s *refractv1alpha1.ServedConversion) { s.Definition = []byte("damaged") },
		"spec":       func(s *refractv1alpha1.ServedConversion) { s.Spec.Spokes[0].Fields[0].Hub = "spec.newer" },
	} {
		good := p.Status.Served.DeepCopy()
		damage(p.Status.Served)
		if err := k.client.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		k.keep(t)
		if p, _ = k.now(t); p.Status.Served.Spec.Spokes[0].Fields[0].Hub != good.Spec.Spokes[0].Fields[0].Hub ||
			!samePacked(p.Status.Served.Definition, reduced(crd)) {
			t.Errorf("The %s in the status was damaged, and is %+v", name, p.Status.Served)
		}
	}
}

// TestDamaged checks the condition of a policy with a damaged status and a spec that does not compile.
func TestDamaged(t *testing.T) {
	p := serving(t, policyFrom(t, strings.Replace(mapped, "spec.capacity", "spec.capacitor", 1), "widgets", 1))
	p.Status.Served.Definition = []byte("damaged")
	k := keeping(t, read(t, widgets), p)
	if again := k.keep(t); again > soon {
		t.Errorf("It looks again in %s", again)
	}
	p, _ = k.now(t)
	is(t, p, refractv1alpha1.ConversionReady, reasonDamaged, "cannot compile it")
}

// TestPutRightFirst checks that spec.conversion is corrected for the spec in status.served, even while the new spec
// waits for the verification of other policies.
func TestPutRightFirst(t *testing.T) {
	p := serving(t, policyFrom(t, mapped, "widgets", 1))
	p.Generation = 2
	p.Spec.Spokes[0].Fields[0].Limits = &refractv1alpha1.ExpressionLimits{}
	k := keeping(t, read(t, widgets), p)
	for range verifying {
		k.verifier.busy <- struct{}{}
	}
	if again := k.keep(t); again != verifyWait {
		t.Errorf("It looks again in %s", again)
	}
	p, crd := k.now(t)
	if !crdConversionOf(crd, k.server.ClientConfig(Path+"widgets.example.com")).current {
		t.Errorf("The API server asks %+v", conversionOf(crd))
	}
	is(t, p, refractv1alpha1.ConversionVerified, reasonUnverified, "Waiting for the verification")
	is(t, p, refractv1alpha1.ConversionReady, reasonEarlier, "Waiting for the verification")
	for range verifying {
		<-k.verifier.busy
	}
	k.keep(t)
	p, _ = k.now(t)
	is(t, p, refractv1alpha1.ConversionReady, reasonServing, "generation 2")
}

// TestFight has another writer that changes spec.conversion after each write of the reconciler. The reconciler must
// write less and less often, and the status must name the writer.
func TestFight(t *testing.T) {
	k := keeping(t, read(t, widgets), policyFrom(t, mapped, "widgets", 1))
	k.keep(t)
	wait := calm
	for range 8 {
		_, crd := k.now(t)
		before := crd.DeepCopy()
		if err := unstructured.SetNestedMap(crd.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
			t.Fatal(err)
		}
		if err := k.client.Patch(context.Background(), crd, client.MergeFrom(before), client.FieldOwner("flux")); err != nil {
			t.Fatal(err)
		}
		if again := k.keep(t); again > wait || again <= wait/2 {
			t.Errorf("It is put right in %s, want %s", again, wait)
		}
		p, _ := k.now(t)
		is(t, p, refractv1alpha1.ConversionReady, reasonSpecConversion, "returns objects as they are stored")
		k.wrote["widgets.example.com"] = writing{at: time.Now().Add(-wait), wait: wait} // As if the pause had ended.
		k.keep(t)
		wait = min(2*wait, patient)
		if p, crd = k.now(t); conversionOf(crd).Strategy != apiextensionsv1.WebhookConverter {
			t.Errorf("The strategy is %s", conversionOf(crd).Strategy)
		}
		is(t, p, refractv1alpha1.ConversionReady, reasonServing, "")
	}
	if wait != patient {
		t.Errorf("In the end it waits for %s", wait)
	}
	k.wrote["widgets.example.com"] = writing{at: time.Now().Add(-patient - reaction), wait: patient}
	if k.note("widgets.example.com"); k.wrote["widgets.example.com"].wait != calm {
		t.Errorf("After a calm time it waits for %s", k.wrote["widgets.example.com"].wait)
	}
}

// TestTwoPrograms checks the message about another writer. It must distinguish another installation of Refract, at
// another address, from a writer of another CA bundle.
func TestTwoPrograms(t *testing.T) {
	got := contested(read(t, widgets), crdConversion{ours: true, elsewhere: "https://there/convert"})
	for _, text := range []string{"points to https://there/convert", "another installation of Refract", "one --webhook-url or --webhook-service"} {
		if !strings.Contains(got, text) {
			t.Errorf("%q is not in %q", text, got)
		}
	}
}

func TestChangedBy(t *testing.T) {
	crd := read(t, widgets)
	if got := changedBy(crd); got != "somebody" {
		t.Errorf("changedBy(): got %q", got)
	}
	entry := func(name, fields string, minute int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(time.Date(2026, 11, 22, 12, minute, 0, 0, time.UTC))
		return metav1.ManagedFieldsEntry{Manager: name, Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	crd.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("cainjector", `{"f:spec":{"f:conversion":{"f:webhook":{"f:clientConfig":{"f:caBundle":{}}}}}}`, 2),
		entry("kubectl", `{"f:spec":{"f:conversion":{"f:strategy":{}}}}`, 1),
		entry("helm", `{"f:spec":{"f:group":{}}}`, 3),
		entry(FieldManager, `{"f:spec":{"f:conversion":{"f:strategy":{}}}}`, 4),
	})
	if got := changedBy(crd); got != "cainjector" {
		t.Errorf("changedBy(): got %q", got)
	}
}

// TestVerifyAgain checks that a verification without a result is repeated only after some time.
func TestVerifyAgain(t *testing.T) {
	v, p := newVerifier(), policyFrom(t, mapped, "widgets", 1)
	c := newCompiler().compile(p, reduced(read(t, widgets)))
	v.verdicts[p.UID] = verdict{about: c.about, seed: 7, until: time.Now().Add(time.Hour)}
	if got := v.verify(t.Context(), p, c); got.seed != 7 {
		t.Errorf("It is verified again: %+v", got)
	}
	v.verdicts[p.UID] = verdict{about: c.about, seed: 7, until: time.Now().Add(-time.Hour)}
	if got := v.verify(t.Context(), p, c); !got.good() {
		t.Errorf("It is not verified again: %+v", got)
	}
	c.program = nil // A remembered compilation has no program.
	v = newVerifier()
	if got := v.verify(t.Context(), p, c); !got.good() {
		t.Errorf("The verdict is %+v", got)
	}
}

// TestShadowServesUntil sets the mode of the serving policy to Shadow. The policy must convert objects and keep its
// finalizer until its successor has status.served. Then it must be compared with the successor.
func TestShadowServesUntil(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		next   string
		serves bool
	}{
		"NotGood": {"The other policy cannot serve, because its spec does not compile.", strings.Replace(mapped, "spec.capacity", "spec.capacitor", 1), true},
		"Good":    {"The other policy serves.", mapped, false},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := serving(t, policyFrom(t, mapped, "widgets", 9))
			shadow.Spec.Mode = refractv1alpha1.ConversionShadow
			shadow.Finalizers = []string{refractv1alpha1.ConversionFinalizer}
			k := keeping(t, read(t, widgets), shadow, policyFrom(t, tc.next, "late", 1))
			for range 2 { // A second call must have the same result.
				k.keep(t)
			}
			p, late := &refractv1alpha1.ConversionPolicy{}, &refractv1alpha1.ConversionPolicy{}
			if err := k.client.Get(t.Context(), client.ObjectKey{Name: "widgets"}, p); err != nil {
				t.Fatal(err)
			}
			if err := k.client.Get(t.Context(), client.ObjectKey{Name: "late"}, late); err != nil {
				t.Fatal(err)
			}
			if serves, kept := p.Status.Served != nil, len(p.Finalizers) > 0; serves != tc.serves || kept != tc.serves {
				t.Errorf("%s\nwant it to serve and to be kept: %t, got %t and %t", tc.reason, tc.serves, serves, kept)
			}
			if serves := late.Status.Served != nil; serves == tc.serves {
				t.Errorf("%s\nwant exactly one to serve, got the other: %t", tc.reason, serves)
			}
			want := reasonComparing
			if tc.serves {
				want = reasonNeeded
			}
			if is := meta.FindStatusCondition(p.Status.Conditions, refractv1alpha1.ConversionReady); is == nil || is.Reason != want {
				t.Errorf("%s\nwant %s, got %+v", tc.reason, want, is)
			}
			if e, _ := k.registry.look("widgets.example.com"); e == nil || e.program == nil {
				t.Errorf("%s\nwant objects to be converted", tc.reason)
			}
		})
	}
}
