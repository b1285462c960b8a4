package conversion

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// complement is the annotation with the values of fields that the version lacks.
const complement = "refract.dev/complement"

// versions are all versions of a widget. The first one is the storage version at the beginning.
var versions = []string{alpha, beta, v1}

// widgets are two widgets in each version: old uses all fields of v1alpha1, and new uses all fields of v1.
var widgets = map[string]map[string]string{
	"old": {
		alpha: `{script: "a,b,c", size: small, timeoutSeconds: 30, title: T, serial: 7, legacy: L, settings: {x: {z: 1}},
			ports: [{name: http, number: 80, color: red, targets: [{zone: a}, {zone: b}]}, {name: dns}]}`,
		beta: `{steps: [a, b, c], size: small, timeoutSeconds: 30, title: T, serial: 7, settings: {x: {z: 1}},
			ports: [{name: http, number: 80, targets: [{zone: a}, {zone: b}]}, {name: dns}]}`,
		v1: `{steps: [a, b, c], size: Small, timeoutMillis: 30000, caption: T, serial: 7, retries: 3, settings: {x: {z: 1}},
			ports: [{name: http, number: 80, targets: [{zone: a}, {zone: b}]}, {name: dns}]}`,
	},
	"new": {
		alpha: `{script: d, size: large, timeoutSeconds: 1, title: U,
			ports: [{name: http, number: 80, targets: [{zone: a}, {zone: b}]}, {name: dns, number: 53}]}`,
		beta: `{steps: [d], size: large, timeoutSeconds: 1, title: U, note: some,
			ports: [{name: http, number: 80, protocol: TCP, targets: [{zone: a, weight: 3}, {zone: b}]}, {name: dns, number: 53, protocol: UDP}]}`,
		v1: `{steps: [d], size: Large, timeoutMillis: 1500, caption: U, note: some, retries: 5,
			ports: [{name: http, number: 80, protocol: TCP, targets: [{zone: a, weight: 3}, {zone: b}]}, {name: dns, number: 53, protocol: UDP}]}`,
	},
}

// from is the version of each widget that has all of its fields.
var from = map[string]string{"old": alpha, "new": v1}

// TestScenarios repeats the scenarios of the API server's own conversion tests. The scenarios share one definition, and
// each continues with the objects of the previous ones.
func TestScenarios(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget")
	s.serve(s.policy("widget"))
	for _, scenario := range []struct {
		name string
		play func(*scene)
	}{
		{"RoundTrip", (*scene).roundTrip},
		{"Unchanged", (*scene).unchanged},
		{"EditWins", (*scene).editWins},
		{"Watch", (*scene).watched},
		{"List", func(s *scene) { s.lists("all are stored as v1alpha1") }},
		{"StorageVersion", (*scene).storageVersion},
		{"NotServed", (*scene).notServed},
		{"Liar", (*scene).liar},
		{"Defaults", (*scene).defaults},
		{"Pruning", (*scene).pruning},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			sub := *s
			sub.T = t
			scenario.play(&sub)
		})
	}
}

// roundTrip creates each widget in each version, and reads it in all versions.
func (s *scene) roundTrip() {
	for name, specs := range widgets {
		for _, created := range versions {
			is := name + "-in-" + created
			answer := s.create(created, is, specs[created])
			if diff := cmp.Diff(s.get(created, is).Object, answer.Object); diff != "" {
				s.Errorf("%s: the answer to the creation is equal to a read: -read, +answered:\n%s", is, diff)
			}
			for _, read := range versions {
				want := specs[read]
				switch {
				case created == from[name] || created == read && name == "old":
				case name == "old": // The fields that only v1alpha1 has were never set.
					want = strings.NewReplacer(", legacy: L", "", ", color: red", "").Replace(want)
				case created == beta: // The fields that only v1 has were never set.
					want = strings.NewReplacer("1500", "1000", "retries: 5", "retries: 3").Replace(want)
				default:
					want = strings.NewReplacer("1500", "1000", "retries: 5", "retries: 3", ", note: some", "", ", weight: 3", "",
						", protocol: TCP", "", ", protocol: UDP", "").Replace(want)
				}
				s.wantSpec("created in "+created, read, is, want)
			}
			if got := s.stored(is)["apiVersion"]; got != s.group+"/"+alpha {
				s.Errorf("%s is stored as %v", is, got)
			}
		}
	}
	for name := range widgets {
		is := name + "-in-" + from[name]
		first := s.get(alpha, is)
		for _, read := range versions[1:] {
			u := s.get(read, is)
			metadata := func(u *unstructured.Unstructured) map[string]any {
				out := maps.Clone(u.Object["metadata"].(map[string]any))
				delete(out, "annotations")
				return out
			}
			if diff := cmp.Diff(metadata(first), metadata(u)); diff != "" {
				s.Errorf("%s: the metadata in %s are equal to those in v1alpha1: -v1alpha1, +%s:\n%s", is, read, read, diff)
			}
		}
	}
	if kept := s.get(v1, "old-in-"+alpha).GetAnnotations()[complement]; !strings.Contains(kept, `"L"`) || !strings.Contains(kept, "red") {
		s.Errorf("the annotation lacks values that v1 cannot hold: %s", kept)
	}
	if kept, ok := s.get(v1, "new-in-"+v1).GetAnnotations()[complement]; ok {
		s.Errorf("v1 holds all values, but the annotation is %s", kept)
	}
}

// unchanged writes objects as they were read, in every version. etcd must store the same spec afterwards.
func (s *scene) unchanged() {
	for name := range widgets {
		is := name + "-in-" + from[name]
		before := s.stored(is)
		for _, through := range versions {
			s.must(s.api.Update(s.Context(), s.get(through, is)))
			if diff := cmp.Diff(before["spec"], s.stored(is)["spec"]); diff != "" {
				s.Errorf("%s, written in %s: -before, +after:\n%s", is, through, diff)
			}
		}
		for _, read := range versions {
			s.wantSpec("written in all versions", read, is, widgets[name][read])
		}
	}
}

// editWins changes widgets in the version with fewer fields.
func (s *scene) editWins() {
	s.create(v1, "edited", widgets["new"][v1])
	s.must(s.patch(alpha, "edited", `{"spec":{"timeoutSeconds":2}}`))
	s.wantSpec("The new timeout holds; the rest is unchanged.", v1, "edited", strings.Replace(widgets["new"][v1], "1500", "2000", 1))

	s.must(s.patch(alpha, "edited", `{"spec":{"size":"small","title":null,
		"ports":[{"name":"ssh","number":22},{"name":"dns","number":54},{"name":"http","targets":[{"zone":"c"},{"zone":"a"}]}]}}`))
	s.wantSpec("Remaining ports and targets keep the fields that v1alpha1 lacks, at any position.", v1, "edited",
		`{steps: [d], size: Small, timeoutMillis: 2000, note: some, retries: 5, ports: [
			{name: ssh, number: 22}, {name: dns, number: 54, protocol: UDP},
			{name: http, protocol: TCP, targets: [{zone: c}, {zone: a, weight: 3}]}]}`)

	s.must(s.patch(v1, "edited", `{"spec":{"retries":null,"note":"other"}}`))
	s.wantSpec("Without retries, the default of the schema holds.", v1, "edited",
		`{steps: [d], size: Small, timeoutMillis: 2000, note: other, retries: 3, ports: [
			{name: ssh, number: 22}, {name: dns, number: 54, protocol: UDP},
			{name: http, protocol: TCP, targets: [{zone: c}, {zone: a, weight: 3}]}]}`)

	s.create(alpha, "edited-old", widgets["old"][alpha])
	s.must(s.patch(v1, "edited-old", `{"spec":{"steps":["x"],"ports":[{"name":"new","protocol":"TCP"},{"name":"http","number":81}]}}`))
	s.wantSpec("Ports that are changed in v1 keep the fields that v1 lacks.", alpha, "edited-old",
		`{script: x, size: small, timeoutSeconds: 30, title: T, serial: 7, legacy: L, settings: {x: {z: 1}},
			ports: [{name: new}, {name: http, number: 81, color: red}]}`)
	s.wantSpec("The new port keeps the fields that v1alpha1 lacks.", v1, "edited-old",
		`{steps: [x], size: Small, timeoutMillis: 30000, caption: T, serial: 7, retries: 3, settings: {x: {z: 1}},
			ports: [{name: new, protocol: TCP}, {name: http, number: 81}]}`)
}

// watched watches a widget in every version.
func (s *scene) watched() {
	watches := map[string]apiwatch.Interface{}
	for _, version := range versions {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(s.group + "/" + version)
		list.SetKind(s.kind + "List")
		w, err := s.api.Watch(s.Context(), list, client.InNamespace(ns), client.MatchingLabels{"watched": "yes"})
		s.must(err)
		defer w.Stop()
		watches[version] = w
	}
	u := s.object(v1, "watched", `{timeoutMillis: 1500}`)
	u.SetLabels(map[string]string{"watched": "yes"})
	s.must(s.api.Create(s.Context(), u))
	s.must(s.patch(alpha, "watched", `{"spec":{"timeoutSeconds":3}}`))
	s.must(s.api.Delete(s.Context(), u))
	for version, want := range map[string][]string{
		alpha: {"ADDED 1", "MODIFIED 3", "DELETED 3"},
		beta:  {"ADDED 1", "MODIFIED 3", "DELETED 3"},
		v1:    {"ADDED 1500", "MODIFIED 3000", "DELETED 3000"},
	} {
		var got []string
		for range want {
			select {
			case e := <-watches[version].ResultChan():
				u, ok := e.Object.(*unstructured.Unstructured)
				if !ok || u.GetAPIVersion() != s.group+"/"+version {
					s.Fatalf("%s: the event %s has %v", version, e.Type, e.Object)
				}
				spec := u.Object["spec"].(map[string]any)
				timeout, ok := spec["timeoutSeconds"]
				if !ok {
					timeout = spec["timeoutMillis"]
				}
				got = append(got, fmt.Sprint(e.Type, " ", timeout))
			case <-s.Context().Done():
				s.Fatalf("%s: no event after %v", version, got)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.Errorf("%s: events: -want, +got:\n%s", version, diff)
		}
	}
}

// lists reads lists of all widgets in all versions: from etcd, in pages, and from the watch cache. Each object in a list must be
// equal to a single read.
func (s *scene) lists(reason string) {
	s.Helper()
	for _, version := range versions {
		for _, raw := range []metav1.ListOptions{{}, {Limit: 2}, {ResourceVersion: "0"}} {
			s.until("the list is whole", func(ctx context.Context) error { // The watch cache may lack the latest writes.
				got := map[string]any{}
				for page := raw; ; {
					list := &unstructured.UnstructuredList{}
					list.SetAPIVersion(s.group + "/" + version)
					list.SetKind(s.kind + "List")
					if err := s.api.List(ctx, list, client.InNamespace(ns), &client.ListOptions{Raw: &page}); err != nil {
						return err
					}
					for i := range list.Items {
						got[list.Items[i].GetName()] = list.Items[i].Object
					}
					if page.Continue = list.GetContinue(); page.Continue == "" {
						break
					}
				}
				want := map[string]any{}
				for name := range got {
					u, err := s.tryGet(ctx, version, name)
					if err != nil {
						return err
					}
					want[name] = u.Object
				}
				if diff := cmp.Diff(want, got); diff != "" || len(got) < 2*len(versions) {
					return fmt.Errorf("%s: %s with %+v, %d items: -alone, +in the list:\n%s", reason, version, raw, len(got), diff)
				}
				return nil
			})
		}
	}
}

// storageVersion changes the storage version. Stored widgets keep their version until the next write, and clients see
// no difference.
func (s *scene) storageVersion() {
	check := func(reason string) {
		s.Helper()
		for name := range widgets {
			for _, read := range versions {
				s.wantSpec(reason, read, name+"-in-"+from[name], widgets[name][read])
			}
		}
	}
	for _, now := range []string{v1, beta, alpha} {
		s.storeAs(now)
		check("the storage version is " + now)
		s.create(v1, "stored-as-"+now, widgets["new"][v1])
		s.wantSpec("stored as "+now, alpha, "stored-as-"+now, widgets["new"][alpha])
		s.lists("some are stored as another version than " + now)
		for name := range widgets {
			is := name + "-in-" + from[name]
			if got := s.stored(is)["apiVersion"]; got == s.group+"/"+now {
				s.Errorf("%s was stored as %v without a write", is, got)
			}
			s.must(s.api.Update(s.Context(), s.get(beta, is)))
			if got := s.stored(is)["apiVersion"]; got != s.group+"/"+now {
				s.Errorf("%s is stored as %v, want %s", is, got, now)
			}
		}
		check("stored as " + now)
	}
	crd, err := s.definition(s.Context())
	s.must(err)
	if diff := cmp.Diff([]string{alpha, v1, beta}, crd.Status.StoredVersions); diff != "" {
		s.Errorf("status.storedVersions: -want, +got:\n%s", diff)
	}
}

// notServed stops serving a version. A stored version is still converted.
func (s *scene) notServed() {
	for _, version := range []string{beta, alpha} {
		serve := func(on bool) {
			s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
				for i := range crd.Spec.Versions {
					if crd.Spec.Versions[i].Name == version {
						crd.Spec.Versions[i].Served = on
					}
				}
			})
			s.untilServed()
		}
		serve(false)
		if _, err := s.tryGet(s.Context(), version, "old-in-"+alpha); err == nil {
			s.Errorf("%s is served", version)
		}
		for name := range widgets {
			s.wantSpec(version+" is not served", v1, name+"-in-"+from[name], widgets[name][v1])
		}
		s.create(v1, "without-"+version, widgets["new"][v1])
		s.wantSpec("created while "+version+" was not served", v1, "without-"+version, widgets["new"][v1])
		serve(true)
		s.wantSpec("created while "+version+" was not served", version, "without-"+version, widgets["new"][version])
	}
}

// liar changes the webhook's responses. The API server accepts changed labels and annotations, restores other metadata,
// and rejects all other changes with its own messages.
func (s *scene) liar() {
	s.create(alpha, "honest", `{title: T}`)
	defer s.front.lie(s.crd, nil)
	metadata := func(key string, value any) func(map[string]any) {
		return func(review map[string]any) {
			for _, o := range converted(review) {
				o["metadata"].(map[string]any)[key] = value
			}
		}
	}
	response := func(key string, value any) func(map[string]any) {
		return func(review map[string]any) { review["response"].(map[string]any)[key] = value }
	}
	prefix := "conversion webhook for " + s.group + "/" + alpha + ", Kind=Widget "
	object := prefix + "returned invalid object: "
	cases := map[string]struct {
		lie  func(review map[string]any)
		want string
	}{
		"UID":        {metadata("uid", "other"), object + "must have the same UID: "},
		"Name":       {metadata("name", "other"), object + "must have the same name: honest != other"},
		"Namespace":  {metadata("namespace", "other"), object + "must have the same namespace: default != other"},
		"NoMetadata": {func(review map[string]any) { delete(converted(review)[0], "metadata") }, object + "must have the same name: honest != "},
		"Label":      {metadata("labels", map[string]any{"x": 1}), "metadata.labels[x] must be a string"},
		"LabelName":  {metadata("labels", map[string]any{"/": "x"}), prefix + "returned invalid metadata"},
		"Kind":       {func(review map[string]any) { converted(review)[0]["kind"] = "Other" }, "invalid kind (expected Widget, received Other)"},
		"Version": {
			func(review map[string]any) { converted(review)[0]["apiVersion"] = s.group + "/" + alpha },
			fmt.Sprintf("invalid groupVersion (expected %s/v1, received %s/v1alpha1)", s.group, s.group),
		},
		"None":     {response("convertedObjects", []any{}), prefix + "returned 0 objects, expected 1"},
		"Question": {response("uid", "other"), `expected response.uid=`},
		"Failure":  {response("result", map[string]any{"status": "Failure", "message": "I will not."}), prefix + "failed: I will not."},
	}
	for name, tc := range cases {
		s.front.lie(s.crd, tc.lie)
		_, err := s.tryGet(s.Context(), v1, "honest")
		harness.WantStatus(s.T, name, err, 500, tc.want)
		s.wantSpec(name, alpha, "honest", `{title: T}`)
	}

	before := s.get(alpha, "honest")
	for key, value := range map[string]any{
		"finalizers": []any{"example.org/x"}, "generation": 77, "resourceVersion": "1", "creationTimestamp": "2001-01-01T00:00:00Z",
		"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}}, "managedFields": []any{},
	} {
		s.front.lie(s.crd, metadata(key, value))
		if diff := cmp.Diff(before.Object["metadata"], s.get(v1, "honest").Object["metadata"]); diff != "" {
			s.Errorf("%s: clients must not notice: -want, +got:\n%s", key, diff)
		}
	}
	s.front.lie(s.crd, func(review map[string]any) {
		for _, o := range converted(review) {
			o["spec"].(map[string]any)["unknown"] = true
		}
	})
	s.wantSpec("Unknown fields are pruned.", v1, "honest", `{caption: T, retries: 3}`)
	s.front.lie(s.crd, nil)
	s.wantSpec("Correct answers are used again.", v1, "honest", `{caption: T, retries: 3}`)
}

// defaults tests the times of defaults. The API server applies the defaults of the storage version at each read, and
// those of the request's version at its write. A policy applies defaults in the conversion to the version that has the
// field.
func (s *scene) defaults() {
	s.create(alpha, "before", `{title: T}`)
	set := func(text string) func(*apiextensionsv1.JSONSchemaProps) {
		return func(p *apiextensionsv1.JSONSchemaProps) {
			p.Default = nil
			if text != "" {
				p.Default = &apiextensionsv1.JSON{Raw: []byte(text)}
			}
		}
	}
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, set("7"), "spec", "level")
		property(crd, beta, set(`"written"`), "spec", "note")
	})
	s.until("the default is filled in", func(ctx context.Context) error {
		u := s.object(beta, "probe", `{}`)
		err := s.api.Create(ctx, u, client.DryRunAll)
		if diff := cmp.Diff(map[string]any{"note": "written", "level": int64(7)}, u.Object["spec"]); err == nil && diff != "" {
			err = fmt.Errorf("-want, +got:\n%s", diff)
		}
		return err
	})
	s.wantSpec("level is not stored, and the default of the storage version applies.", alpha, "before", `{title: T, level: 7}`)
	s.wantSpec("It applies in other versions, too, and the default of v1beta1 does not.", beta, "before", `{title: T, level: 7}`)
	s.wantSpec("The policy's default holds in v1.", v1, "before", `{caption: T, level: 7, retries: 3}`)
	if _, ok := s.stored("before")["spec"].(map[string]any)["level"]; ok {
		s.Error("A read has stored the default.")
	}
	s.create(beta, "after", `{title: T}`)
	s.wantSpec("A write in v1beta1 gets its defaults.", v1, "after", `{caption: T, note: written, level: 7, retries: 3}`)
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, set(""), "spec", "level")
		property(crd, beta, set(""), "spec", "note")
	})
	s.until("there are no defaults", func(ctx context.Context) error {
		u := s.object(alpha, "probe", `{}`)
		err := s.api.Create(ctx, u, client.DryRunAll)
		if spec, _ := u.Object["spec"].(map[string]any); err == nil && len(spec) > 0 {
			err = fmt.Errorf("the spec is %v", spec)
		}
		return err
	})
}

// pruning removes a field from a schema, and the conversion no longer returns its value. When the schema has the field
// again, the value is back.
func (s *scene) pruning() {
	s.create(alpha, "pruned", `{title: T, legacy: L, size: small}`)
	var legacy apiextensionsv1.JSONSchemaProps
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, func(spec *apiextensionsv1.JSONSchemaProps) {
			legacy = spec.Properties["legacy"]
			delete(spec.Properties, "legacy")
		}, "spec")
	})
	s.until("the field is pruned", func(ctx context.Context) error {
		u, err := s.tryGet(ctx, v1, "pruned")
		if err == nil && len(u.GetAnnotations()) > 0 {
			err = fmt.Errorf("annotations are %v", u.GetAnnotations())
		}
		return err
	})
	s.wantSpec("The policy, which no longer fits the schema, still converts.", v1, "pruned", `{caption: T, size: Small, retries: 3}`)
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, func(spec *apiextensionsv1.JSONSchemaProps) { spec.Properties["legacy"] = legacy }, "spec")
	})
	s.until("the field is kept", func(ctx context.Context) error {
		u, err := s.tryGet(ctx, v1, "pruned")
		if err == nil && !strings.Contains(u.GetAnnotations()[complement], `"L"`) {
			err = fmt.Errorf("annotations are %v", u.GetAnnotations())
		}
		return err
	})
}
