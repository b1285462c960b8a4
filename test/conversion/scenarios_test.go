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

// complement is the annotation with what a version cannot hold.
const complement = "refract.dev/complement"

// versions are all of a widget, the one that is stored at first before the others.
var versions = []string{alpha, beta, v1}

// widgets are two widgets as each version says them: one that says all that v1alpha1
// can, and one that says all that v1 can.
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

// from is the version that says all of a widget.
var from = map[string]string{"old": alpha, "new": v1}

// TestScenarios are what the API server's own tests ask of a converter, one after the
// other with one definition: what one leaves is what the next one finds.
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

// roundTrip creates each widget in each version, and reads it in each.
func (s *scene) roundTrip() {
	for name, specs := range widgets {
		for _, created := range versions {
			is := name + "-in-" + created
			answer := s.create(created, is, specs[created])
			if diff := cmp.Diff(s.get(created, is).Object, answer.Object); diff != "" {
				s.Errorf("%s: who creates it is answered with what is read: -read, +answered:\n%s", is, diff)
			}
			for _, read := range versions {
				want := specs[read]
				switch {
				case created == from[name] || created == read && name == "old":
				case name == "old": // What only v1alpha1 says was never said.
					want = strings.NewReplacer(", legacy: L", "", ", color: red", "").Replace(want)
				case created == beta: // So what only v1 says.
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
				s.Errorf("%s: metadata in %s are those in v1alpha1: -v1alpha1, +%s:\n%s", is, read, read, diff)
			}
		}
	}
	if kept := s.get(v1, "old-in-"+alpha).GetAnnotations()[complement]; !strings.Contains(kept, `"L"`) || !strings.Contains(kept, "red") {
		s.Errorf("what v1 cannot hold is in the annotation, which is %s", kept)
	}
	if kept, ok := s.get(v1, "new-in-"+v1).GetAnnotations()[complement]; ok {
		s.Errorf("in v1 nothing is left to be kept, but %s", kept)
	}
}

// unchanged writes what was read, in every version: etcd holds the same afterwards.
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

// editWins changes widgets in the version that says less.
func (s *scene) editWins() {
	s.create(v1, "edited", widgets["new"][v1])
	s.must(s.patch(alpha, "edited", `{"spec":{"timeoutSeconds":2}}`))
	s.wantSpec("The new timeout holds; the rest is as it was.", v1, "edited", strings.Replace(widgets["new"][v1], "1500", "2000", 1))

	s.must(s.patch(alpha, "edited", `{"spec":{"size":"small","title":null,
		"ports":[{"name":"ssh","number":22},{"name":"dns","number":54},{"name":"http","targets":[{"zone":"c"},{"zone":"a"}]}]}}`))
	s.wantSpec("Ports and targets that stay keep what v1alpha1 does not know, wherever they are.", v1, "edited",
		`{steps: [d], size: Small, timeoutMillis: 2000, note: some, retries: 5, ports: [
			{name: ssh, number: 22}, {name: dns, number: 54, protocol: UDP},
			{name: http, protocol: TCP, targets: [{zone: c}, {zone: a, weight: 3}]}]}`)

	s.must(s.patch(v1, "edited", `{"spec":{"retries":null,"note":"other"}}`))
	s.wantSpec("Without retries the schema's default holds.", v1, "edited",
		`{steps: [d], size: Small, timeoutMillis: 2000, note: other, retries: 3, ports: [
			{name: ssh, number: 22}, {name: dns, number: 54, protocol: UDP},
			{name: http, protocol: TCP, targets: [{zone: c}, {zone: a, weight: 3}]}]}`)

	s.create(alpha, "edited-old", widgets["old"][alpha])
	s.must(s.patch(v1, "edited-old", `{"spec":{"steps":["x"],"ports":[{"name":"new","protocol":"TCP"},{"name":"http","number":81}]}}`))
	s.wantSpec("So do those that v1 changes.", alpha, "edited-old",
		`{script: x, size: small, timeoutSeconds: 30, title: T, serial: 7, legacy: L, settings: {x: {z: 1}},
			ports: [{name: new}, {name: http, number: 81, color: red}]}`)
	s.wantSpec("What v1alpha1 cannot hold of the new port is kept.", v1, "edited-old",
		`{steps: [x], size: Small, timeoutMillis: 30000, caption: T, serial: 7, retries: 3, settings: {x: {z: 1}},
			ports: [{name: new, protocol: TCP}, {name: http, number: 81}]}`)
}

// watched follows a widget in every version.
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

// lists reads all widgets in lists of all versions, from etcd, in pages, and from the
// watch cache: each is what it is when it is read alone.
func (s *scene) lists(reason string) {
	s.Helper()
	for _, version := range versions {
		for _, raw := range []metav1.ListOptions{{}, {Limit: 2}, {ResourceVersion: "0"}} {
			s.until("the list is whole", func(ctx context.Context) error { // The cache may be behind.
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

// storageVersion changes what widgets are stored as: those that are there stay as they
// are until they are written, and nobody notices.
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
				s.Errorf("%s was stored as %v before anybody wrote it", is, got)
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
		s.Errorf("versions that were stored: -want, +got:\n%s", diff)
	}
}

// notServed takes a version from the clients: even one that is stored is still
// converted from and to.
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

// liar has somebody on the wire change what is answered: the API server takes labels
// and annotations, restores other metadata, and refuses the rest in its words.
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
			s.Errorf("%s: nobody notices: -want, +got:\n%s", key, diff)
		}
	}
	s.front.lie(s.crd, func(review map[string]any) {
		for _, o := range converted(review) {
			o["spec"].(map[string]any)["unknown"] = true
		}
	})
	s.wantSpec("What no schema knows is pruned.", v1, "honest", `{caption: T, retries: 3}`)
	s.front.lie(s.crd, nil)
	s.wantSpec("And then the truth.", v1, "honest", `{caption: T, retries: 3}`)
}

// defaults shows whose defaults hold: those of the version that is stored, whenever it
// is read, and those of the version that somebody writes. A policy's own hold when an
// object is converted to the version that has the field.
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
	s.wantSpec("It is stored without level, and read with the stored version's default.", alpha, "before", `{title: T, level: 7}`)
	s.wantSpec("So it is in the others, and v1beta1's own default was never written.", beta, "before", `{title: T, level: 7}`)
	s.wantSpec("The policy's default holds in v1.", v1, "before", `{caption: T, level: 7, retries: 3}`)
	if _, ok := s.stored("before")["spec"].(map[string]any)["level"]; ok {
		s.Error("Reading has stored the default.")
	}
	s.create(beta, "after", `{title: T}`)
	s.wantSpec("Who writes v1beta1 has its defaults.", v1, "after", `{caption: T, note: written, level: 7, retries: 3}`)
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, set(""), "spec", "level")
		property(crd, beta, set(""), "spec", "note")
	})
	s.until("there are no defaults", func(ctx context.Context) error {
		u := s.object(alpha, "probe", `{}`)
		err := s.api.Create(ctx, u, client.DryRunAll)
		if spec, _ := u.Object["spec"].(map[string]any); err == nil && len(spec) > 0 {
			err = fmt.Errorf("there is %v", spec)
		}
		return err
	})
}

// pruning shows that what a schema does not know any more is not converted either, and
// that it is there again when the schema does.
func (s *scene) pruning() {
	s.create(alpha, "pruned", `{title: T, legacy: L, size: small}`)
	var legacy apiextensionsv1.JSONSchemaProps
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, func(spec *apiextensionsv1.JSONSchemaProps) {
			legacy = spec.Properties["legacy"]
			delete(spec.Properties, "legacy")
		}, "spec")
	})
	s.until("it is pruned", func(ctx context.Context) error {
		u, err := s.tryGet(ctx, v1, "pruned")
		if err == nil && len(u.GetAnnotations()) > 0 {
			err = fmt.Errorf("annotations are %v", u.GetAnnotations())
		}
		return err
	})
	s.wantSpec("The policy that no longer fits converts.", v1, "pruned", `{caption: T, size: Small, retries: 3}`)
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		property(crd, alpha, func(spec *apiextensionsv1.JSONSchemaProps) { spec.Properties["legacy"] = legacy }, "spec")
	})
	s.until("it is kept", func(ctx context.Context) error {
		u, err := s.tryGet(ctx, v1, "pruned")
		if err == nil && !strings.Contains(u.GetAnnotations()[complement], `"L"`) {
			err = fmt.Errorf("annotations are %v", u.GetAnnotations())
		}
		return err
	})
}
