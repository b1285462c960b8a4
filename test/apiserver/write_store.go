package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// generated returns a name from a counter, with the alphabet of kube-apiserver.
func generated(base string, n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	suffix := make([]byte, 5)
	for i := len(suffix) - 1; i >= 0; i-- {
		suffix[i] = alphabet[n%len(alphabet)]
		n /= len(alphabet)
	}
	if len(base) > 58 {
		base = base[:58]
	}
	return base + string(suffix)
}

// keep stores an object and calls the functions of OnWrite. In a dry run it does neither.
func (s *Server) keep(w *writing, verb string, st *store, key string, before *entry, after *unstructured.Unstructured) *entry {
	if w.dryRun {
		if after == nil {
			return before
		}
		if before != nil {
			after.SetResourceVersion(before.object.GetResourceVersion())
		}
		return &entry{object: after}
	}
	e := s.put(st, key, after)
	s.tell(w, verb, before, after)
	return e
}

func (s *Server) tell(w *writing, verb string, before *entry, after *unstructured.Unstructured) {
	if len(s.writes) == 0 {
		return
	}
	was := w.told(verb, before, after)
	for _, do := range s.writes {
		do(was)
	}
}

func (w *writing) told(verb string, before *entry, after *unstructured.Unstructured) Write {
	t := Write{
		Verb: verb, GVR: w.m.typ.GVR, Namespace: w.namespace, Name: w.name, Subresource: w.subresource,
		User: w.user, Manager: w.manager, After: after, DryRun: w.dryRun,
	}
	if before != nil {
		t.Before = before.object
	}
	return t
}

func (s *Server) admit(w *writing, verb string, before *entry, after *unstructured.Unstructured) error {
	for _, ask := range s.admits {
		if err := ask(w.told(verb, before, after)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) mutate(w *writing, before *entry, after *unstructured.Unstructured) {
	if b := w.m.builtin; b != nil && b.admission != nil && w.subresource == "" && before == nil {
		b.admission(after)
	}
	for _, change := range s.mutates {
		change(w.told(w.verb, before, after))
	}
}

// lifecycle rejects new objects in a namespace that is missing or being deleted.
func (s *Server) lifecycle(w *writing, name string) error {
	if !w.m.typ.Namespaced || s.types[namespaces] == nil {
		return nil
	}
	ns := s.stores[namespaces.GroupResource()].objects[w.namespace]
	if ns == nil {
		return apierrors.NewNotFound(namespaces.GroupResource(), w.namespace)
	}
	phase, _, _ := unstructured.NestedString(ns.object.Object, "status", "phase")
	if ns.object.GetDeletionTimestamp() == nil && phase != "Terminating" {
		return nil
	}
	err := apierrors.NewForbidden(w.resource(), name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", w.namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: "NamespaceTerminating", Message: fmt.Sprintf("namespace %s is being terminated", w.namespace), Field: "metadata.namespace",
	})
	return err
}

const modified = "the object has been modified; please apply your changes to the latest version and try again"

// replace stores a changed object.
func (s *Server) replace(w *writing, st *store, key string, before *entry, live, after *unstructured.Unstructured) (*entry, error) {
	s.mutate(w, before, after)
	said := after.GetResourceVersion()
	switch {
	case said == "" || said == "0":
		if !w.m.unconditional() {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: w.m.gvk.Group, Kind: w.m.typ.GVR.Resource}, w.name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
			})
		}
		after.SetResourceVersion(live.GetResourceVersion())
	case said != live.GetResourceVersion():
		return nil, apierrors.NewConflict(w.resource(), w.name, errors.New(modified))
	}
	w.m.prepareUpdate(s, w.subresource, after, live)
	if errs := w.m.validateUpdate(w.subresource, after, live); len(errs) > 0 {
		return nil, apierrors.NewInvalid(w.m.gvk.GroupKind(), w.name, errs)
	}
	if w.m.builtin != nil && w.m.builtin.reread != nil {
		w.m.builtin.reread(after.Object)
	}
	if w.m.builtin != nil && w.m.builtin.admitUpdate != nil && w.subresource == "" {
		if err := w.m.builtin.admitUpdate(s, after, live); err != nil {
			return nil, err
		}
	}
	stored := &unstructured.Unstructured{Object: inVersion(after.Object, w.m.storage.String())}
	if !before.unsettled && same(before.object.Object, stored.Object) {
		return before, nil
	}
	if err := s.admit(w, w.verb, before, stored); err != nil {
		return nil, err
	}
	if len(stored.GetFinalizers()) == 0 && live.GetDeletionTimestamp() != nil && noGrace(live) && w.m.endsWithoutFinalizers(stored) {
		if !w.dryRun {
			s.put(st, key, nil)
			s.tell(w, "removed", before, nil)
		}
		return &entry{object: stored}, nil
	}
	return s.keep(w, w.verb, st, key, before, stored), nil
}

func noGrace(u *unstructured.Unstructured) bool {
	grace := u.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// same reports whether two objects are equal except for the times in managedFields.
func same(a, b map[string]any) bool {
	am, _ := a["metadata"].(map[string]any)
	bm, _ := b["metadata"].(map[string]any)
	if len(a) != len(b) || len(am) != len(bm) {
		return false
	}
	for key, value := range am {
		if key == "managedFields" {
			continue
		}
		if !equal(value, bm[key]) {
			return false
		}
	}
	for key, value := range a {
		if key == "metadata" {
			continue
		}
		if !equal(value, b[key]) {
			return false
		}
	}
	af, _ := am["managedFields"].([]any)
	bf, _ := bm["managedFields"].([]any)
	return slices.EqualFunc(af, bf, func(a, b any) bool {
		x, _ := a.(map[string]any)
		y, _ := b.(map[string]any)
		if len(x) != len(y) {
			return false
		}
		for key, value := range x {
			if key != "time" && !equal(value, y[key]) {
				return false
			}
		}
		return true
	})
}

// equal compares JSON values.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// nameRule is the validation of names for types without their own rule.
func nameRule(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func (m *machinery) validateCreate(u *unstructured.Unstructured) field.ErrorList {
	rule := apivalidation.NameIsDNSSubdomain
	if m.builtin != nil {
		rule = nameRule
		if m.builtin.name != nil {
			rule = m.builtin.name
		}
	}
	errs := apivalidation.ValidateObjectMetaAccessor(u, m.typ.Namespaced, rule, field.NewPath("metadata"))
	errs = append(errs, m.standard(u)...)
	return m.validate("", u, nil, errs)
}

func (m *machinery) validateUpdate(subresource string, after, live *unstructured.Unstructured) field.ErrorList {
	at := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(after, m.typ.Namespaced, nameRule, at)
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(after, live, at)...)
	if subresource == "status" && m.builtin != nil {
		if m.builtin.validateStatus != nil {
			errs = append(errs, m.builtin.validateStatus(after.Object)...)
		}
		return errs
	}
	if m.builtin == nil { // kube-apiserver reports these errors twice.
		errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(after, live, at)...)
	}
	errs = append(errs, m.standard(after)...)
	return m.validate(subresource, after, live, errs)
}

// standard rejects finalizers without a domain in objects of built-in types.
func (m *machinery) standard(u *unstructured.Unstructured) field.ErrorList {
	if m.builtin == nil || m.gvk.Group == "apiextensions.k8s.io" || m.gvk.Group == "coordination.k8s.io" {
		return nil
	}
	var errs field.ErrorList
	for i, f := range u.GetFinalizers() {
		if !strings.Contains(f, "/") && f != "kubernetes" && f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), f,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// validate appends the errors of the rules of the object's type.
func (m *machinery) validate(subresource string, u, live *unstructured.Unstructured, errs field.ErrorList) field.ErrorList {
	switch {
	case m.builtin != nil && m.builtin.validate != nil:
		return append(errs, m.builtin.validate(u.Object, live)...)
	case m.typ.Schema != nil:
		return m.typ.Schema.validate(subresource, u, live, errs)
	}
	return errs
}
