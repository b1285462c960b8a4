package conversionwebhook

import (
	"context"

	"refract.dev/test/harness"

	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/converter"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

// object is an object in the storage version.
const object = `
apiVersion: example.com/v1
kind: KIND
metadata: {name: a, namespace: default}
spec: {size: 5, name: five}
`

// TestConversion tests policies while all kinds of faults occur around them.
func TestConversion(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.serve()
	atOnce(t, map[string]func(*testing.T){
		"TakesEffect": w.takesEffect, "PutRight": w.putRight, "OthersConvert": w.othersConvert, "DefinitionChanges": w.definitionChanges,
		"SpecIsNotGood": w.specIsNotGood, "Shadow": w.shadow, "Deletion": w.deletion, "Damaged": w.damaged,
		"NewFields": w.newFields,
	})
	w.restart()
	atOnce(t, map[string]func(*testing.T){
		"Refused": w.refusals, "DefinitionHasChanged": w.definitionHasChanged, "SpecIsStillNotGood": w.specIsStillNotGood,
		"NewFieldsAreKept": w.newFieldsAreKept,
	})
	t.Run("NewAuthority", w.newAuthority)
	t.Run("Finalizer", w.finalizer)
	t.Run("TwoServe", w.twoServe)
	w.stop()
	t.Run("Down", w.down)
}

// atOnce runs independent tests at the same time, regardless of the number of processors: they wait most of the time.
func atOnce(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var running sync.WaitGroup
	for name, test := range tests {
		running.Go(func() { t.Run(name, test) })
	}
	running.Wait()
}

// converts tests the conversion of a kind with a policy.
func (w *world) converts(t *testing.T, kind string) {
	t.Helper()
	w.define(t, kind)
	w.create(t, of(object, kind))
	w.create(t, of(policy, kind))
	w.condition(t, of("NAME", kind), refractv1alpha1.ConversionReady, "Serving")
	w.reads(t, kind, "v2", "a", ".spec.capacity", "5")
}

func (w *world) takesEffect(t *testing.T) {
	w.converts(t, "Widget")
	if message := w.condition(t, "widgets", refractv1alpha1.ConversionReady, "Serving"); !strings.Contains(message, "generation 1") {
		t.Errorf("The message is %q", message)
	}
	w.reads(t, "Widget", "v2", "a", ".spec", `{"capacity":5,"name":"five"}`)
	c := w.conversion(t, "Widget")
	if c.Strategy != apiextensionsv1.WebhookConverter || fmt.Sprint(c.Webhook.ConversionReviewVersions) != "[v1 v1beta1]" ||
		*c.Webhook.ClientConfig.URL != "https://"+w.address+"/convert/widgets.example.com" || len(c.Webhook.ClientConfig.CABundle) == 0 {
		t.Errorf("spec.conversion is %+v", c)
	}
	p := w.policy(t, "widgets")
	if p.Status.Served == nil || p.Status.Served.Generation != 1 || p.Status.Verification == nil || p.Status.ObservedGeneration != 1 {
		t.Errorf("The status is %+v", p.Status)
	}
	if fmt.Sprint(p.Finalizers) != "["+refractv1alpha1.ConversionFinalizer+"]" {
		t.Errorf("The finalizers are %v", p.Finalizers)
	}
	harness.Eventually(t, "there is an event", func(context.Context) error {
		out, err := w.do("", "get", "events", "-n", "default", "-o", "jsonpath={.items[*].reason}")
		if err != nil || !strings.Contains(out, "Wired") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	w.must(t, of(`{"spec":{"capacity":7}}`, "Widget"), "patch", "widgets.v2.example.com", "a", "--type=merge", "-p", `{"spec":{"capacity":7}}`)
	w.reads(t, "Widget", "v1", "a", ".spec.size", "7")
}

func (w *world) refusals(t *testing.T) {
	w.define(t, "Gadget")
	w.refused(t, "spec.spokes[0]", of(policy, "Gadget", "spec.capacity", "spec.nope"), "create", "-f", "-")
	w.refused(t, "ConversionPolicy widgets converts the objects of widgets.example.com already",
		of(policy, "Widget", "NAME", "second"), "create", "-f", "-")
	w.refused(t, "is needed by CustomResourceDefinition widgets.example.com", of(policy, "Widget", "mode: Serve", "mode: Shadow"), "apply", "-f", "-")
	out := w.must(t, of(policy, "Gizmo"), "create", "-f", "-")
	if !strings.Contains(out, "there is no CustomResourceDefinition gizmos.example.com yet") {
		t.Errorf("want a warning, got %s", out)
	}
	w.condition(t, "gizmos", refractv1alpha1.ConversionCompiled, "DefinitionNotFound")
	w.define(t, "Gizmo")
	w.condition(t, "gizmos", refractv1alpha1.ConversionReady, "Serving")
}

// putRight removes the conversion from a definition, as another client might. The program must restore it: without it,
// clients would get unconverted objects.
func (w *world) putRight(t *testing.T) {
	w.converts(t, "Sprocket")
	w.must(t, "", "patch", "crd", "sprockets.example.com", "--type=merge", "-p", `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
	harness.Eventually(t, "the definition names the webhook again", func(context.Context) error {
		if c := w.conversion(t, "Sprocket"); c.Strategy != apiextensionsv1.WebhookConverter {
			return fmt.Errorf("it is %s", c.Strategy)
		}
		return nil
	})
	w.reads(t, "Sprocket", "v2", "a", ".spec.capacity", "5")
}

// damaged damages the served spec in the status of a policy.
func (w *world) damaged(t *testing.T) {
	w.converts(t, "Hinge")
	w.must(t, "", "patch", "conversionpolicy", "hinges", "--subresource=status", "--type=merge", "-p", `{"status":{"served":{"definition":"eA=="}}}`)
	harness.Eventually(t, "the status is right again", func(context.Context) error {
		if s := w.policy(t, "hinges").Status.Served; len(s.Definition) < 10 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	w.condition(t, "hinges", refractv1alpha1.ConversionReady, "Serving")
	w.create(t, of(object, "Hinge", "name: a", "name: b"))
	w.reads(t, "Hinge", "v2", "b", ".spec.capacity", "5")
}

// newAuthority replaces the certificates and their authority.
func (w *world) newAuthority(t *testing.T) {
	w.converts(t, "Lever")
	was := w.conversion(t, "Lever").Webhook.ClientConfig.CABundle
	w.must(t, "", "delete", "secret", secret, "-n", corev1alpha1.SystemNamespace)
	harness.Eventually(t, "the API server trusts another authority", func(context.Context) error {
		if bytes.Equal(was, w.conversion(t, "Lever").Webhook.ClientConfig.CABundle) {
			return errors.New("it is the same")
		}
		return nil
	})
	w.create(t, of(object, "Lever", "name: a", "name: b"))
	w.reads(t, "Lever", "v2", "b", ".spec.capacity", "5")
}

// othersConvert tests a definition with another conversion webhook.
func (w *world) othersConvert(t *testing.T) {
	w.define(t, "Cog")
	w.must(t, "", "patch", "crd", "cogs.example.com", "--type=merge", "-p", `{"spec":{"conversion":{"strategy":"Webhook","webhook":{
		"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"cogs","name":"converter"}}}}}}`)
	w.create(t, of(policy, "Cog"))
	message := w.condition(t, "cogs", refractv1alpha1.ConversionReady, "ConversionOwnedByOthers")
	if !strings.Contains(message, "Service cogs/converter") || !strings.Contains(message, "kubectl annotate conversionpolicy cogs refract.dev/take-over=true") {
		t.Errorf("The message is %q", message)
	}
	if c := w.conversion(t, "Cog"); c.Webhook.ClientConfig.Service == nil {
		t.Errorf("The other webhook was replaced: %+v", c)
	}
	w.must(t, "", "annotate", "conversionpolicy", "cogs", "refract.dev/take-over=true")
	w.condition(t, "cogs", refractv1alpha1.ConversionReady, "Serving")
	w.create(t, of(object, "Cog"))
	w.reads(t, "Cog", "v2", "a", ".spec.capacity", "5")
	if c := w.conversion(t, "Cog").Webhook.ClientConfig; c.Service != nil || c.URL == nil {
		t.Errorf("The definition names the webhook %+v", c)
	}
}

// third is a version that the policy does not name.
const third = `[{"op":"add","path":"/spec/versions/-","value":{"name":"v3","served":true,"storage":false,
	"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"amount":{"type":"integer"}}}}}}}}]`

// definitionChanges adds a version to a definition that the policy does not know: the last valid spec continues to
// convert, also after the restart in the next test.
func (w *world) definitionChanges(t *testing.T) {
	w.converts(t, "Pulley")
	w.must(t, "", "patch", "crd", "pulleys.example.com", "--type=json", "-p", third)
	if message := w.condition(t, "pulleys", refractv1alpha1.ConversionCompiled, "Invalid"); !strings.Contains(message, "v3") {
		t.Errorf("The message is %q", message)
	}
	w.condition(t, "pulleys", refractv1alpha1.ConversionReady, "EarlierServing")
	w.create(t, of(object, "Pulley", "name: a", "name: b"))
	w.reads(t, "Pulley", "v2", "b", ".spec.capacity", "5")
}

func (w *world) definitionHasChanged(t *testing.T) {
	w.create(t, of(object, "Pulley", "name: a", "name: c"))
	w.reads(t, "Pulley", "v2", "c", ".spec.capacity", "5")
	w.refused(t, "v3", "", "get", "pulleys.v3.example.com", "c")

	w.must(t, of(policy, "Pulley")+`  - version: v3
    fields:
    - {hub: spec.capacity, spoke: spec.amount}
    - {hub: spec.name, added: {}}
`, "apply", "-f", "-")
	w.condition(t, "pulleys", refractv1alpha1.ConversionReady, "Serving")
	w.reads(t, "Pulley", "v3", "c", ".spec.amount", "5")
}

// lossy is a pair of expressions that are not inverses of each other.
const lossy = `
apiVersion: refract.dev/v1alpha1
kind: ConversionPolicy
metadata: {name: NAME}
spec:
  crd: PLURAL.example.com
  hub: v2
  mode: Serve
  spokes:
  - version: v1
    fields:
    - {hub: spec.capacity, spoke: spec.size, toHub: value + 1, toSpoke: value - 2}
`

// specIsNotGood changes a policy so that its verification fails: the last verified spec continues to convert, also
// after the restart in the next test.
func (w *world) specIsNotGood(t *testing.T) {
	w.converts(t, "Crank")
	w.must(t, of(lossy, "Crank"), "apply", "-f", "-")
	if message := w.condition(t, "cranks", refractv1alpha1.ConversionVerified, "LawBroken"); !strings.Contains(message, "spec") {
		t.Errorf("The message is %q", message)
	}
	message := w.condition(t, "cranks", refractv1alpha1.ConversionReady, "EarlierServing")
	if !strings.Contains(message, "generation 1") || !strings.Contains(message, "generation 2") {
		t.Errorf("The message is %q", message)
	}
}

func (w *world) specIsStillNotGood(t *testing.T) {
	w.create(t, of(object, "Crank", "name: a", "name: b"))
	w.reads(t, "Crank", "v2", "b", ".spec.capacity", "5")
	if p := w.policy(t, "cranks"); p.Status.Served.Generation != 1 {
		t.Errorf("Generation %d is served", p.Status.Served.Generation)
	}
}

// other is a policy in mode Shadow that keeps the fields capacity and size apart. The first policy moves the value
// between them.
const other = `
apiVersion: refract.dev/v1alpha1
kind: ConversionPolicy
metadata: {name: NAME-shadow}
spec:
  crd: PLURAL.example.com
  hub: v2
  mode: Shadow
  spokes:
  - version: v1
    fields:
    - {hub: spec.capacity, added: {}}
    - {spoke: spec.size, removed: {}}
`

func (w *world) shadow(t *testing.T) {
	w.converts(t, "Valve")
	w.create(t, of(other, "Valve"))
	w.condition(t, "valves-shadow", refractv1alpha1.ConversionReady, "Comparing")
	harness.Eventually(t, "differences are counted", func(context.Context) error {
		if _, err := w.do("", "annotate", "valves.v1.example.com", "a", "--overwrite", "touched="+t.Name()+fmt.Sprint(w.touched())); err != nil {
			return err
		}
		w.reads(t, "Valve", "v2", "a", ".spec.capacity", "5")
		s := w.policy(t, "valves-shadow").Status.Shadow
		if s == nil || s.Different == 0 || s.Compared < s.Different || s.Generation != 1 || !strings.Contains(s.LastDifference, "spec.") {
			return fmt.Errorf("the status is %+v", s)
		}
		return nil
	})
	w.must(t, "", "delete", "conversionpolicy", "valves-shadow")
	w.reads(t, "Valve", "v2", "a", ".spec.capacity", "5")
}

// deletion deletes a policy while its definition has two served versions, and again with one version.
func (w *world) deletion(t *testing.T) {
	w.converts(t, "Rotor")
	w.refused(t, "v1, v2 are served or stored", "", "delete", "conversionpolicy", "rotors")
	w.oneVersion(t, "Rotor")
	w.must(t, "", "delete", "conversionpolicy", "rotors")
	w.unwired(t, "Rotor")
	w.reads(t, "Rotor", "v2", "a", ".spec.capacity", "5")
}

// oneVersion stores all objects of a kind in v2, and stops serving v1.
func (w *world) oneVersion(t *testing.T, kind string) {
	t.Helper()
	crd := of("PLURAL.example.com", kind)
	w.must(t, "", "patch", "crd", crd, "--type=json", "-p", `[
		{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	harness.Eventually(t, "objects are stored in v2", func(context.Context) error {
		w.must(t, "", "annotate", of("PLURAL", kind)+".v1.example.com", "a", "--overwrite", "touched="+fmt.Sprint(w.touched()))
		out := w.must(t, "", "get", "--raw", "/apis/example.com/v2", "-v=0")
		if !strings.Contains(out, "storageVersionHash") {
			return fmt.Errorf("discovery says %s", out)
		}
		return nil
	})
	w.must(t, "", "patch", "crd", crd, "--type=json", "-p", `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`)
	w.must(t, "", "patch", "crd", crd, "--subresource=status", "--type=merge", "-p", `{"status":{"storedVersions":["v2"]}}`)
}

// unwired waits until a definition has no conversion webhook, and its policy is deleted.
func (w *world) unwired(t *testing.T, kind string) {
	t.Helper()
	harness.Eventually(t, "the policy is deleted", func(context.Context) error {
		err := w.client.Get(t.Context(), client.ObjectKey{Name: of("NAME", kind)}, &refractv1alpha1.ConversionPolicy{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if c := w.conversion(t, kind); c.Strategy != apiextensionsv1.NoneConverter || c.Webhook != nil {
		t.Errorf("spec.conversion is %+v", c)
	}
}

// finalizer deletes a policy while no admission webhook rejects the deletion.
func (w *world) finalizer(t *testing.T) {
	w.converts(t, "Gear")
	w.stop() // The program would restore the webhook configuration before the deletion of the policy.
	w.must(t, "", "delete", "validatingwebhookconfiguration", converter.ConfigurationName)
	harness.Eventually(t, "the policy is marked for deletion", func(context.Context) error { // The API server still calls the webhook for a moment.
		if out, err := w.do("", "delete", "conversionpolicy", "gears", "--wait=false"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	w.serve()
	if message := w.condition(t, "gears", refractv1alpha1.ConversionReady, "Needed"); !strings.Contains(message, "v1, v2") {
		t.Errorf("The message is %q", message)
	}
	w.create(t, of(object, "Gear", "name: a", "name: b"))
	w.reads(t, "Gear", "v2", "b", ".spec.capacity", "5")
	w.oneVersion(t, "Gear")
	w.unwired(t, "Gear")
}

// twoServe tests two policies in mode Serve for one definition. The second one is created while no webhook rejects it.
func (w *world) twoServe(t *testing.T) {
	w.converts(t, "Spring")
	w.stop()
	w.must(t, "", "delete", "validatingwebhookconfiguration", converter.ConfigurationName)
	w.create(t, of(policy, "Spring", "NAME", "another"))
	w.serve()
	if message := w.condition(t, "another", refractv1alpha1.ConversionReady, "AnotherServes"); !strings.Contains(message, "ConversionPolicy springs is older") {
		t.Errorf("The message is %q", message)
	}
	w.condition(t, "springs", refractv1alpha1.ConversionReady, "Serving")
	w.must(t, "", "delete", "conversionpolicy", "another")
}

// down stops the program: conversions fail.
func (w *world) down(t *testing.T) {
	w.create(t, of(object, "Widget", "name: a", "name: z"))
	w.refused(t, "conversion webhook for example.com/v1, Kind=Widget failed", "", "get", "widgets.v2.example.com", "z")
	w.refused(t, "policies.conversion.refract.dev", "", "delete", "conversionpolicy", "widgets")
	w.serve()
	w.reads(t, "Widget", "v2", "z", ".spec.capacity", "5")
}
