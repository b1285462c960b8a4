package structural

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// InvalidError has the reasons why the API server would reject a definition.
type InvalidError struct {
	// Name is the name of the definition.
	Name string
	// Findings are all errors, at least one, in the order of [Check].
	Findings []Finding
}

// Error returns the first finding and the number of the others.
func (e *InvalidError) Error() string {
	text := fmt.Sprintf("CustomResourceDefinition %s: %s", e.Name, e.Findings[0])
	if n := len(e.Findings) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// Definition is a compiled CustomResourceDefinition. It is immutable, and safe for concurrent use.
type Definition struct {
	crd      *apiextensionsv1.CustomResourceDefinition
	versions []*Version
}

// New compiles a CustomResourceDefinition after the defaulting of the API server. It keeps no reference to crd.
//
// The error is an [*InvalidError] if the API server would reject the creation of crd, for example because of a schema
// that is not structural. There is an exception: crd may be older than a requirement for new definitions, such as the
// approval of a group in k8s.io. If all schemas are structural, such requirements are not errors. Unknown fields and
// findings of lints are not errors either; [Check] finds them. The error wraps [ErrNotDefinition] if crd is not a
// CustomResourceDefinition.
func New(crd map[string]any) (*Definition, error) {
	m, err := decode(crd)
	if errors.Is(err, errRemoved) {
		return nil, &InvalidError{Name: nameOf(crd), Findings: []Finding{removed}}
	}
	if err != nil {
		return nil, err
	}
	if found := m.create(); len(found) > 0 {
		lives, err := livesOn(crd)
		if err != nil {
			return nil, err
		}
		if !lives {
			return nil, &InvalidError{Name: m.v1.Name, Findings: found}
		}
	}
	d := &Definition{crd: m.v1, versions: make([]*Version, len(m.v1.Spec.Versions))}
	for i := range m.v1.Spec.Versions {
		if d.versions[i], err = compile(m.v1, &m.v1.Spec.Versions[i]); err != nil {
			return nil, fmt.Errorf("CustomResourceDefinition %s: compiling version %s: %w", m.v1.Name, m.v1.Spec.Versions[i].Name, err)
		}
	}
	return d, nil
}

// livesOn reports whether an API server that already has the definition keeps it, even if it would reject it as a new
// one. The API server must accept it as an update of itself, and be able to use its schemas.
func livesOn(crd map[string]any) (bool, error) {
	m, err := decode(crd)
	if err != nil {
		return false, err
	}
	before, err := decode(crd)
	if err != nil {
		return false, err
	}
	if len(m.update(before)) > 0 {
		return false, nil
	}
	for i := range m.v1.Spec.Versions {
		internal, err := internalSchema(&m.v1.Spec.Versions[i])
		if err != nil {
			return false, nil //nolint:nilerr // There is a finding about this error.
		}
		s, err := schema.NewStructural(internal)
		if err != nil || len(schema.ValidateStructural(nil, s)) > 0 {
			return false, nil //nolint:nilerr // The same.
		}
	}
	return true, nil
}

// Name returns the name of the definition: PLURAL.GROUP.
func (d *Definition) Name() string { return d.crd.Name }

// Group returns the API group of the objects.
func (d *Definition) Group() string { return d.crd.Spec.Group }

// Kind returns the kind of the objects.
func (d *Definition) Kind() string { return d.crd.Spec.Names.Kind }

// Plural returns the plural name of the kind, as in URLs.
func (d *Definition) Plural() string { return d.crd.Spec.Names.Plural }

// Namespaced reports whether objects are namespaced.
func (d *Definition) Namespaced() bool {
	return d.crd.Spec.Scope == apiextensionsv1.NamespaceScoped
}

// Storage returns the name of the storage version.
func (d *Definition) Storage() string {
	for _, v := range d.crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return "" // Cannot happen: New has checked it.
}

// Versions returns all versions in the order of the manifest, also those that are not served. The caller owns the
// slice.
func (d *Definition) Versions() []*Version { return slices.Clone(d.versions) }

// Version returns the version with this name. The error lists the existing versions.
func (d *Definition) Version(name string) (*Version, error) {
	for _, v := range d.versions {
		if v.Name() == name {
			return v, nil
		}
	}
	return nil, fmt.Errorf("CustomResourceDefinition %s has no version %q: want %s", d.Name(), name, d.names((*Version).Name))
}

// VersionOf returns the version with the apiVersion and kind of an object. The error names the expected values.
func (d *Definition) VersionOf(obj map[string]any) (*Version, error) {
	kind, _ := obj["kind"].(string)
	apiVersion, _ := obj["apiVersion"].(string)
	if kind == d.Kind() {
		for _, v := range d.versions {
			if v.APIVersion() == apiVersion {
				return v, nil
			}
		}
	}
	return nil, fmt.Errorf("want kind %s of apiVersion %s, got kind %q of apiVersion %q",
		d.Kind(), d.names((*Version).APIVersion), kind, apiVersion)
}

// names lists the versions for use in a sentence.
func (d *Definition) names(of func(*Version) string) string {
	all := make([]string, len(d.versions))
	for i, v := range d.versions {
		all[i] = of(v)
	}
	return strings.Join(all, " or ")
}

// nameOf returns metadata.name of a manifest.
func nameOf(obj map[string]any) string {
	metadata, _ := obj["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}
