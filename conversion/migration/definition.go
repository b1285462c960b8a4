package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Annotation is the annotation of a CustomResourceDefinition with the progress of a running or interrupted migration,
// as JSON. It is removed at the end of the migration.
const Annotation = "refract.dev/migration"

// fieldManager is the field manager of all patches.
const fieldManager = "refract-migrate"

// mark is the content of [Annotation].
type mark struct {
	// To is the version in which the migration stores objects.
	To string `json:"to"`
	// Generation is the generation of the definition at the start of the migration.
	Generation int64 `json:"generation"`
	// After is the key of the last visited object, NAMESPACE/NAME or NAME. All objects up to this one have been
	// visited, in the order of the API server.
	After string `json:"after,omitempty"`
}

// definition is the CustomResourceDefinition of the migrated objects. It stores the progress in an annotation, and
// detects changes by other writers.
type definition struct {
	client dynamic.ResourceInterface
	pace   pace
	name   string
	crd    *apiextensionsv1.CustomResourceDefinition // At the start of the migration.
}

// read reads the definition at the start of the migration.
func (d *definition) read(ctx context.Context) error {
	var u *unstructured.Unstructured
	err := d.pace.persist(ctx, func(ctx context.Context) (err error) {
		u, err = d.client.Get(ctx, d.name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w", d.name, ErrNoDefinition)
	case err != nil:
		return d.about("reading", err)
	}
	d.crd, err = d.decode(u)
	return err
}

func (d *definition) decode(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return nil, d.about("reading", err)
	}
	return crd, nil
}

// judge returns an error if the objects of the definition cannot be migrated to the version.
func judge(crd *apiextensionsv1.CustomResourceDefinition, to string) error {
	if crd.DeletionTimestamp != nil {
		return fmt.Errorf("%s: %w: it is being deleted", crd.Name, ErrNotReady)
	}
	if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}) {
		return fmt.Errorf("%s: %w: it is not Established", crd.Name, ErrNotReady)
	}
	var names []string
	storage := ""
	var target *apiextensionsv1.CustomResourceDefinitionVersion
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		names = append(names, v.Name)
		if v.Storage {
			storage = v.Name
		}
		if v.Name == to {
			target = v
		}
	}
	switch {
	case target == nil:
		return fmt.Errorf("%s: %s: %w: it has %s", crd.Name, to, ErrNoVersion, strings.Join(names, ", "))
	case !target.Served:
		return fmt.Errorf("%s: version %s: %w", crd.Name, to, ErrNotServed)
	case !target.Storage:
		return fmt.Errorf("%s: version %s: %w: that is %s", crd.Name, to, ErrNotStorage, storage)
	}
	return nil
}

// interrupted returns the progress of an interrupted migration to this version; nil if there is none that can be
// continued.
func (d *definition) interrupted(to string) *mark {
	text, ok := d.crd.Annotations[Annotation]
	if !ok {
		return nil
	}
	at := &mark{}
	if json.Unmarshal([]byte(text), at) != nil || at.To != to || at.Generation != d.crd.Generation {
		return nil
	}
	return at
}

// save writes the progress into the annotation. It returns an error if another writer has changed the definition.
func (d *definition) save(ctx context.Context, at *mark) error {
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return d.annotate(ctx, string(text))
}

// annotate sets the annotation. The value nil removes it.
func (d *definition) annotate(ctx context.Context, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.crd.UID, "annotations": map[string]any{Annotation: value},
	}})
	if err != nil {
		return err
	}
	u, err := d.patch(ctx, patch)
	if err != nil {
		return d.about("annotating", err)
	}
	return d.unchanged(u)
}

// patch sends a merge patch, with retries.
func (d *definition) patch(ctx context.Context, patch []byte, subresources ...string) (*unstructured.Unstructured, error) {
	var u *unstructured.Unstructured
	err := d.pace.persist(ctx, func(ctx context.Context) (err error) {
		u, err = d.client.Patch(ctx, d.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
		return err
	})
	return u, err
}

// unchanged returns an error if another writer has changed the definition since the start.
func (d *definition) unchanged(u *unstructured.Unstructured) error {
	switch {
	case u.GetUID() != d.crd.UID:
		return fmt.Errorf("%s: %w: it was deleted and recreated", d.name, ErrChanged)
	case u.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s: %w: it is being deleted", d.name, ErrChanged)
	case u.GetGeneration() != d.crd.Generation:
		return fmt.Errorf("%s: %w: generation %d became %d", d.name, ErrChanged, d.crd.Generation, u.GetGeneration())
	}
	return nil
}

// finish sets status.storedVersions to only this version, and removes the annotation. It returns the new
// status.storedVersions.
func (d *definition) finish(ctx context.Context, to string) (stored []string, err error) {
	for try := 1; ; try++ {
		u, err := d.client.Get(ctx, d.name, metav1.GetOptions{})
		if err != nil {
			return nil, d.about("reading", err)
		}
		if err := d.unchanged(u); err != nil {
			return nil, err
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion()},
			"status":   map[string]any{"storedVersions": []string{to}},
		})
		if err != nil {
			return nil, err
		}
		u, err = d.patch(ctx, patch, "status")
		if apierrors.IsConflict(err) && try < d.pace.tries {
			continue // Another writer has changed another part of the definition.
		}
		if err != nil {
			return nil, d.about("updating the status of", err)
		}
		crd, err := d.decode(u)
		if err != nil {
			return nil, err
		}
		return crd.Status.StoredVersions, d.annotate(ctx, nil)
	}
}

// about adds the name of the definition to an error.
func (d *definition) about(doing string, err error) error {
	return fmt.Errorf("%s CustomResourceDefinition %s: %w", doing, d.name, err)
}
