package pizza

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/conversion/migration"
	"refract.dev/test/harness"
)

// still is a text in the API server's error if a version is removed from a definition too early.
const still = `missing from spec.versions; v1alpha1 was previously a storage version, and must remain in spec.versions ` +
	`until a storage migration ensures no data remains persisted in v1alpha1 and removes v1alpha1 from status.storedVersions`

// TestA13: v1beta1 becomes the storage version, and then v1alpha1 is removed.
func TestA13(t *testing.T) { each(t, a13) }

func a13(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.create(pizza(alpha, "one", `[a, b, a]`))
	s.create(pizza(beta, "two", `[{name: c, quantity: 3}]`))
	s.must(s.apply("kitchen", false, fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","metadata":{"name":"p"},"spec":{"toppings":["d"]}}`, alpha)))
	before := map[string]*unstructured.Unstructured{}
	for _, name := range []string{"one", "two", "p"} {
		before[name] = s.get(beta, name)
	}
	s.storeAsBeta()
	crd, err := s.definition(t.Context(), pizzas)
	s.must(err)
	if diff := cmp.Diff([]string{"v1alpha1", "v1beta1"}, crd.Status.StoredVersions); diff != "" {
		t.Errorf("stored versions before the migration: -want, +got:\n%s", diff)
	}
	harness.WantStatus(s.T, "There may be objects of v1alpha1.", s.update(withoutAlpha), 422, `status.storedVersions[0]: Invalid value: "v1alpha1": `+still)

	s.migrate()
	crd, err = s.definition(t.Context(), pizzas)
	s.must(err)
	if diff := cmp.Diff([]string{"v1beta1"}, crd.Status.StoredVersions); diff != "" {
		t.Errorf("stored versions after the migration: -want, +got:\n%s", diff)
	}
	for name, o := range s.stored() {
		if o["apiVersion"] != beta {
			t.Errorf("%s is stored as %v", name, o["apiVersion"])
		}
	}
	for name, want := range before {
		got := s.get(beta, name)
		got.SetResourceVersion(want.GetResourceVersion()) // The migration has changed only this field of the pizza.
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -before, +after:\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"a", "a", "b"}, names(s.get(alpha, "one"))); diff != "" {
		t.Errorf("v1alpha1 is still served: -want, +got:\n%s", diff)
	}

	s.must(s.update(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false }))
	s.until("v1alpha1 is no longer served", func(ctx context.Context) error {
		if _, err := s.tryGet(ctx, alpha, "one"); !notServed(err) {
			return fmt.Errorf("it is still served: %w", err)
		}
		return nil
	})
	s.by.retire(s)
	s.until("v1beta1 is served without a conversion", func(ctx context.Context) error {
		p, err := s.tryGet(ctx, beta, "one")
		if err == nil && fmt.Sprint(names(p)) != "[2 a 1 b]" {
			err = fmt.Errorf("the pizza is %v", p.Object)
		}
		return err
	})

	// Every apply fails if managedFields has an entry with the removed version, until a client clears managedFields:
	// https://issue.k8s.io/111937
	apply := func() error {
		return s.apply("kitchen", true, fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","metadata":{"name":"p"},"spec":{"toppings":[{"name":"e","quantity":2}]}}`, beta))
	}
	harness.WantStatus(s.T, "The API server cannot convert the object to the version in managedFields.", apply(), 500, "request to convert CR to an invalid group/version: "+alpha)
	s.must(s.api.Patch(t.Context(), object(beta, "Pizza", s.ns, "p"),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))))
	s.must(apply())
	p := s.get(beta, "p")
	if diff := cmp.Diff([]string{"2 e"}, names(p)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func withoutAlpha(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Versions = crd.Spec.Versions[1:]
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
}

func (s *scene) migrate() *migration.Result {
	s.Helper()
	result, err := migration.Run(s.Context(), migration.Options{Config: s.cfg, Name: pizzas, To: "v1beta1"})
	s.must(err)
	if result.Outcome != migration.Migrated {
		s.Fatalf("the migration ended with %+v", result)
	}
	return result
}

// TestMigrationRace: writes during a migration are not lost.
func TestMigrationRace(t *testing.T) { each(t, migrationRace) }

func migrationRace(t *testing.T, w *world) {
	const each, writers = 25, 4
	s := begin(t, w, setting{})
	for i := range each {
		for w := range writers {
			s.create(pizza(alpha, fmt.Sprintf("p-%d-%d", w, i), `[a, a]`))
		}
	}
	s.storeAsBeta()
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			version := []string{alpha, beta}[w%2]
			for i := range each {
				s.write(version, fmt.Sprintf("p-%d-%d", w, i), fmt.Sprintf("late-%d", i))
				if err := s.api.Create(t.Context(), s.read(pizza(alpha, fmt.Sprintf("new-%d-%d", w, i), `[b, c, b]`))); err != nil {
					t.Errorf("creating a pizza during the migration: %v", err)
				}
			}
		})
	}
	s.migrate()
	running.Wait()
	stored := s.stored()
	if len(stored) != 2*each*writers {
		t.Errorf("there are %d pizzas, want %d", len(stored), 2*each*writers)
	}
	for w := range writers {
		for i := range each {
			name := fmt.Sprintf("p-%d-%d", w, i)
			o := &unstructured.Unstructured{Object: stored[name]}
			if o.GetAPIVersion() != beta || fmt.Sprint(names(o)) != "[2 a]" || o.GetLabels()["written"] != fmt.Sprintf("late-%d", i) {
				t.Errorf("%s is stored as %v", name, o.Object)
			}
		}
	}
}

// write labels a pizza, and retries on conflicts.
func (s *scene) write(version, name, label string) {
	for {
		p, err := s.tryGet(s.Context(), version, name)
		if err != nil {
			s.Errorf("reading %s during the migration: %v", name, err)
			return
		}
		p.SetLabels(map[string]string{"written": label})
		err = s.api.Update(s.Context(), p)
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			s.Errorf("writing %s during the migration: %v", name, err)
			return
		}
	}
}
