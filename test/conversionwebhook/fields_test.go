package conversionwebhook

import (
	"context"

	"refract.dev/test/harness"

	"fmt"
	"strings"
	"testing"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// addField adds a text field to one version of a definition. Version 0 is the storage version.
func (w *world) addField(t *testing.T, kind string, version int, name string) {
	t.Helper()
	w.must(t, "", "patch", "crd", of("PLURAL.example.com", kind), "--type=json", "-p", fmt.Sprintf(
		`[{"op":"add","path":"/spec/versions/%d/schema/openAPIV3Schema/properties/spec/properties/%s","value":{"type":"string"}}]`, version, name))
}

// write patches an object in a version until the API server stores the value: for a moment, the API server prunes
// fields by the previous schema.
func (w *world) write(t *testing.T, kind, version, field, value string) {
	t.Helper()
	harness.Eventually(t, field+" is written", func(context.Context) error {
		resource := of("PLURAL."+version+".example.com", kind)
		w.must(t, "", "patch", resource, "a", "--type=merge", "-p", fmt.Sprintf(`{"spec":{%q:%q}}`, field, value))
		if got := w.must(t, "", "get", resource, "a", "-o", "jsonpath={.spec."+field+"}"); got != value {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// newFields adds a field to each version of a definition. The policy does not name the fields yet. Their values survive
// writes in the other version.
func (w *world) newFields(t *testing.T) {
	w.converts(t, "Spindle")
	w.addField(t, "Spindle", 0, "only")
	w.addField(t, "Spindle", 1, "too")
	harness.Eventually(t, "both are kept", func(context.Context) error {
		const want = "until the policy names them: spec.only of v1; spec.too, which v1 does not have."
		if message := w.condition(t, "spindles", refractv1alpha1.ConversionReady, "EarlierServing"); !strings.Contains(message, want) {
			return fmt.Errorf("the message is %q", message)
		}
		return nil
	})
	w.write(t, "Spindle", "v1", "only", "x")
	w.write(t, "Spindle", "v2", "too", "y")
	w.must(t, "", "patch", "spindles.v2.example.com", "a", "--type=merge", "-p", `{"spec":{"capacity":7}}`)
	w.must(t, "", "patch", "spindles.v1.example.com", "a", "--type=merge", "-p", `{"spec":{"name":"seven"}}`)
	w.reads(t, "Spindle", "v1", "a", ".spec", `{"name":"seven","only":"x","size":7}`)
	w.reads(t, "Spindle", "v2", "a", ".spec", `{"capacity":7,"name":"seven","too":"y"}`)
}

// newFieldsAreKept tests that the new fields survive writes after a restart, and names them in the policy at the end.
func (w *world) newFieldsAreKept(t *testing.T) {
	w.must(t, "", "patch", "spindles.v2.example.com", "a", "--type=merge", "-p", `{"spec":{"capacity":8}}`)
	w.reads(t, "Spindle", "v1", "a", ".spec", `{"name":"seven","only":"x","size":8}`)
	w.reads(t, "Spindle", "v2", "a", ".spec", `{"capacity":8,"name":"seven","too":"y"}`)
	w.condition(t, "spindles", refractv1alpha1.ConversionReady, "EarlierServing")

	w.must(t, of(policy, "Spindle")+`    - {spoke: spec.only, removed: {}}
    - {hub: spec.too, added: {}}
`, "apply", "-f", "-")
	w.condition(t, "spindles", refractv1alpha1.ConversionReady, "Serving")
	if kept := w.policy(t, "spindles").Status.Served.Kept; kept != nil {
		t.Errorf("The status still lists the kept fields %+v", kept)
	}
	w.reads(t, "Spindle", "v1", "a", ".spec", `{"name":"seven","only":"x","size":8}`)
	w.reads(t, "Spindle", "v2", "a", ".spec", `{"capacity":8,"name":"seven","too":"y"}`)

	w.addField(t, "Spindle", 1, "later")
	w.condition(t, "spindles", refractv1alpha1.ConversionReady, "EarlierServing")
	w.must(t, of(policy, "Spindle")+`    - {spoke: spec.only, hub: spec.later}
    - {hub: spec.too, added: {}}
`, "apply", "-f", "-")
	w.condition(t, "spindles", refractv1alpha1.ConversionReady, "Serving")
	w.reads(t, "Spindle", "v2", "a", ".spec", `{"capacity":8,"later":"x","name":"seven","too":"y"}`)
}
