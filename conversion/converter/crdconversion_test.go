package converter

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// asking returns the definition with this spec.conversion.
func asking(t *testing.T, conversion string) *unstructured.Unstructured {
	t.Helper()
	crd := read(t, widgets)
	var c map[string]any
	if err := yaml.Unmarshal([]byte(conversion), &c); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedMap(crd.Object, c, "spec", "conversion"); err != nil {
		t.Fatal(err)
	}
	return crd
}

const owned = `{"f:spec":{"f:conversion":{"f:strategy":{},"f:webhook":{"f:clientConfig":{"f:url":{}}}}}}`

func TestCRDConversion(t *testing.T) {
	const url = "https://here/convert/widgets.example.com"
	trusted := base64.StdEncoding.EncodeToString([]byte("authority"))
	webhook := func(config, versions string) string {
		return "{strategy: Webhook, webhook: {clientConfig: " + config + ", conversionReviewVersions: " + versions + "}}"
	}
	cases := map[string]struct {
		reason     string
		conversion string
		managed    string // Managed fields of Refract.
		want       *admissionregistrationv1.WebhookClientConfig
		is         crdConversion
	}{
		"None":     {"Without a webhook, the address must be written.", "{strategy: None}", "", at(url), crdConversion{}},
		"Absent":   {"Without a strategy, the address must be written.", "{}", "", at(url), crdConversion{}},
		"NoConfig": {"Without an address, the address must be written.", "{strategy: Webhook}", "", at(url), crdConversion{}},
		"Current": {
			"The address and the CA bundle are up to date.", webhook(`{url: "`+url+`", caBundle: `+trusted+`}`, "[v1, v1beta1]"), "", at(url),
			crdConversion{current: true, ours: true},
		},
		"Authority": {
			"The CA bundle is outdated.", webhook(`{url: "`+url+`", caBundle: YQ==}`, "[v1, v1beta1]"), "", at(url), crdConversion{ours: true},
		},
		"AuthorityOfOthers": {
			"Another program manages the CA bundle.", webhook(`{url: "`+url+`", caBundle: YQ==}`, "[v1, v1beta1]"), "",
			&admissionregistrationv1.WebhookClientConfig{URL: at(url).URL}, crdConversion{current: true, ours: true},
		},
		"ReviewVersions": {
			"Older API servers support only one version of reviews.", webhook(`{url: "`+url+`", caBundle: `+trusted+`}`, "[v1]"), "", at(url), crdConversion{ours: true},
		},
		"OtherURL": {
			"The webhook of another program converts.", webhook(`{url: "https://there/convert"}`, "[v1]"), "", at(url),
			crdConversion{theirs: "https://there/convert"},
		},
		"OldURL": {
			"An earlier address of Refract is replaced.", webhook(`{url: "https://there/convert"}`, "[v1]"), owned, at(url),
			crdConversion{ours: true, elsewhere: "https://there/convert"},
		},
		"OldURLToService": {
			"A definition has either a URL or a Service, so the URL is removed first.", webhook(`{url: "https://there/convert"}`, "[v1]"), owned, behind("s"),
			crdConversion{ours: true, elsewhere: "https://there/convert", replace: true},
		},
		"OtherService": {
			"The webhook of another program converts.", webhook("{service: {namespace: shop, name: converter}}", "[v1]"), "", at(url),
			crdConversion{theirs: "Service shop/converter", replace: true},
		},
		"Service": {
			"The API server fills in the port.",
			webhook("{service: {namespace: shop, name: s, path: /convert/widgets.example.com, port: 443}, caBundle: "+trusted+"}", "[v1, v1beta1]"), "",
			behind("s"), crdConversion{current: true, ours: true},
		},
		"OtherPath": {
			"Several webhooks may share a Service, with different paths.", webhook("{service: {namespace: shop, name: s, path: /theirs}}", "[v1]"), "",
			behind("s"), crdConversion{theirs: "Service shop/s"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			crd := asking(t, tc.conversion)
			if tc.managed != "" {
				crd.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
					"manager": FieldManager, "operation": "Apply", "apiVersion": "apiextensions.k8s.io/v1", "fieldsType": "FieldsV1", "fieldsV1": object(t, tc.managed),
				}}
			}
			if diff := cmp.Diff(tc.is, crdConversionOf(crd, tc.want), cmp.AllowUnexported(crdConversion{})); diff != "" {
				t.Errorf("%s\nconversionOf(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	return read(t, text).Object
}

func TestNeededBy(t *testing.T) {
	const url = "https://here/convert/widgets.example.com"
	ours := `{strategy: Webhook, webhook: {clientConfig: {url: "` + url + `"}, conversionReviewVersions: [v1]}}`
	cases := map[string]struct {
		reason     string
		conversion string
		change     func(crd *unstructured.Unstructured)
		unserved   bool
		needed     bool
	}{
		"TwoServed":   {"Objects are read in two versions.", ours, nil, false, true},
		"NobodyAsked": {"Another writer removed the webhook, and the reconciler will restore it soon.", "{strategy: None}", nil, false, true},
		"NeverServed": {"A policy that was never served is not needed.", "{strategy: None}", nil, true, false},
		"Restored":    {"A policy from a backup may have no status.", ours, nil, true, true},
		"Others":      {"The webhook of another program converts.", `{strategy: Webhook, webhook: {clientConfig: {url: "https://there"}}}`, nil, false, false},
		"OneServed": {"With one version in use, there is nothing to convert.", ours, func(crd *unstructured.Unstructured) {
			version(crd, 1)["served"] = false
		}, false, false},
		"StillStored": {"Objects are stored in a version that is no longer served.", ours, func(crd *unstructured.Unstructured) {
			version(crd, 0)["served"], version(crd, 0)["storage"], version(crd, 1)["storage"] = false, false, true
		}, false, true},
		"Migrated": {"After a migration, objects are stored in one version only.", ours, func(crd *unstructured.Unstructured) {
			version(crd, 0)["served"], version(crd, 0)["storage"], version(crd, 1)["storage"] = false, false, true
			crd.Object["status"] = map[string]any{"storedVersions": []any{"v2"}}
		}, false, false},
		"SameSchemas": {"The schemas are equal, but the policy moves a field, so stored objects need the conversion.", ours, func(crd *unstructured.Unstructured) {
			version(crd, 1)["schema"] = version(crd, 0)["schema"]
		}, false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, mapped, "widgets", 1)
			if !tc.unserved {
				serving(t, p)
			}
			crd := asking(t, tc.conversion)
			if tc.change != nil {
				tc.change(crd)
			}
			got := neededBy(p, crd, at(url))
			if (got != "") != tc.needed {
				t.Errorf("%s\nneededBy(): got %q", tc.reason, got)
			}
			if tc.needed && !strings.Contains(got, "refract crd migrate widgets.example.com") {
				t.Errorf("It does not say what to do: %q", got)
			}
		})
	}
	if got := neededBy(serving(t, policyFrom(t, mapped, "widgets", 1)), nil, at(url)); got != "" {
		t.Errorf("There is no definition, and the policy is needed: %s", got)
	}
}

// TestNeededByEqualSchemas checks that a definition needs its policy if the policy changes a value, even if the
// versions have equal schemas.
func TestNeededByEqualSchemas(t *testing.T) {
	const url = "https://here/convert/widgets.example.com"
	cases := map[string]struct {
		reason string
		spokes string
		needed string
	}{
		"NoEntries": {"Only the names of the versions differ.", "[{version: v1}]", ""},
		"SamePlace": {"The two places of the entry are the same.", "[{version: v1, fields: [{hub: spec.size, spoke: spec.size}]}]", ""},
		"Lists":     {"Keys identify the elements of a list, and change no value.", "[{version: v1, lists: [{hub: spec.ports, keys: [name]}]}]", ""},
		"Negated": {
			"A boolean has the opposite meaning in the other version.",
			`[{version: v1, fields: [{hub: spec.enabled, spoke: spec.enabled, toHub: "!value", toSpoke: "!value"}]}]`, "spec.spokes[0].fields[0]",
		},
		"Prefix": {
			"Each version has its own notation of the value.", `[{version: v1, fields: [{hub: spec.size, spoke: spec.size},
				{hub: spec.description, spoke: spec.description, toHub: "'the ' + value", toSpoke: "value.substring(4)", lossy: true}]}]`,
			"spec.spokes[0].fields[1]",
		},
		"Map": {
			"Each version has its own word for the value.",
			"[{version: v1, fields: [{hub: spec.description, spoke: spec.description, map: [{hub: Large, spoke: large}, {hub: large, spoke: Large}]}]}]",
			"spec.spokes[0].fields[0]",
		},
		"Scale": {
			"Each version has its own unit.",
			"[{version: v1, fields: [{hub: spec.size, spoke: spec.size, scale: {hub: 1000, spoke: 1}}]}]", "spec.spokes[0].fields[0]",
		},
		"Moved": {"The value has another place.", "[{version: v1, fields: [{hub: spec.capacity, spoke: spec.size}, {hub: spec.size, spoke: spec.capacity}]}]", "spec.spokes[0].fields[0]"},
		"NotInUse": {
			"Objects are never in a version that is not in use.",
			"[{version: v1}, {version: v0, fields: [{hub: spec.size, spoke: spec.size, scale: {hub: 1000, spoke: 1}}]}]", "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			crd := asking(t, `{strategy: Webhook, webhook: {clientConfig: {url: "`+url+`"}, conversionReviewVersions: [v1]}}`)
			fields := `type: object
properties:
  spec:
    type: object
    properties:
      size: {type: integer}
      capacity: {type: integer}
      enabled: {type: boolean}
      description: {type: string}
      ports: {type: array, items: {type: object, required: [name], properties: {name: {type: string}}}}
`
			for i := range 2 {
				version(crd, i)["schema"] = map[string]any{"openAPIV3Schema": object(t, fields)}
			}
			unused := map[string]any{"name": "v0", "served": false, "storage": false, "schema": version(crd, 0)["schema"]}
			spec := crd.Object["spec"].(map[string]any)
			spec["versions"] = append(spec["versions"].([]any), unused)
			p := policyFrom(t, "spec: {crd: widgets.example.com, hub: v2, mode: Serve, spokes: "+tc.spokes+"}", "widgets", 1)
			if _, findings, err := compile(&p.Spec, reduced(crd)); err != nil {
				t.Fatalf("%v: %v", err, findings)
			}
			for _, p := range []*refractv1alpha1.ConversionPolicy{p, serving(t, p.DeepCopy())} { // A policy from a backup has no status.
				got := neededBy(p, crd, at(url))
				if (got != "") != (tc.needed != "") || !strings.Contains(got, tc.needed) {
					t.Errorf("%s\nneededBy(): got %q, want it to name %q", tc.reason, got, tc.needed)
				}
			}
		})
	}
}

func version(crd *unstructured.Unstructured, i int) map[string]any {
	return crd.Object["spec"].(map[string]any)["versions"].([]any)[i].(map[string]any)
}
