package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	structurallisttype "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemaobjectmeta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// rules are the special rules of a built-in type.
type rules struct {
	// prefix is the path in etcd, if it differs from the name of the resource.
	prefix string
	// createdByUpdate is true if an update of a missing object creates the object.
	createdByUpdate bool
	// conditional is true if an update must have a resourceVersion.
	conditional bool
	// orphans is true if a deletion without a propagation policy orphans the dependents.
	orphans bool
	// counts is true if a change of annotations also increments metadata.generation.
	counts bool
	// statusKeepsLabels is true if writes to the subresource status leave labels unchanged, too.
	statusKeepsLabels bool
	// whole is true if the response to a deletion is the deleted object and not a Status.
	whole bool
	// name validates names.
	name apivalidation.ValidateNameFunc
	// fields are the selectable fields besides name and namespace.
	fields map[string][]string
	// defaults sets defaults.
	defaults func(o map[string]any)
	// admission changes a new object before its validation.
	admission func(u *unstructured.Unstructured)
	// create changes a new object. update changes an object, u, that replaces the stored object, live.
	create func(s *Server, u *unstructured.Unstructured)
	update func(s *Server, u, live *unstructured.Unstructured)
	// validateStatus returns the validation errors of an object's status.
	validateStatus func(o map[string]any) field.ErrorList
	// admitUpdate may reject an update after the validation.
	admitUpdate func(s *Server, u, live *unstructured.Unstructured) error
	// reread changes an object as an API server does when it reads the object from etcd. It returns true if the object
	// has changed.
	reread func(o map[string]any) bool
	// unsettled is true if reread may change a new object.
	unsettled bool
	// validate returns the validation errors of an object. live is the stored object, nil for a creation.
	validate func(o map[string]any, live *unstructured.Unstructured) field.ErrorList
}

func rulesOf(gr schema.GroupResource) *rules {
	if r := special[gr.String()]; r != nil {
		return r
	}
	return &rules{}
}

func (m *machinery) unconditional() bool { return m.builtin != nil && !m.builtin.conditional }

func (m *machinery) returnsDeleted() bool { return m.builtin != nil && m.builtin.whole }

// endsWithoutFinalizers reports whether the removal of the last finalizer completes the deletion of an object.
func (m *machinery) endsWithoutFinalizers(u *unstructured.Unstructured) bool {
	if m.typ.GVR != namespaces {
		return true
	}
	left, _, _ := unstructured.NestedSlice(u.Object, "spec", "finalizers")
	return len(left) == 0
}

// prepareCreate sets the fields that an API server sets in a new object.
func (m *machinery) prepareCreate(s *Server, u *unstructured.Unstructured) {
	if m.typ.Status {
		m.clearStatus(u.Object)
	}
	if m.typ.Generation {
		u.SetGeneration(1)
	}
	if m.builtin != nil && m.builtin.create != nil {
		m.builtin.create(s, u)
	}
}

// clearStatus replaces the status by the default status of a new object.
func (m *machinery) clearStatus(o map[string]any) {
	if m.builtin == nil {
		delete(o, "status")
		return
	}
	status := map[string]any{}
	if empty, err := m.empty(map[string]any{}); err == nil {
		if is, ok := empty["status"].(map[string]any); ok {
			status = is
		}
	}
	o["status"] = status
}

// empty returns the object after a conversion to its Go type and back.
func (m *machinery) empty(o map[string]any) (map[string]any, error) {
	typed, err := known.New(m.gvk)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, typed); err != nil {
		return nil, err
	}
	return plain(typed, m.gvk)
}

// prepareUpdate restores the fields that a write cannot change.
func (m *machinery) prepareUpdate(s *Server, subresource string, u, live *unstructured.Unstructured) {
	if subresource == "status" && m.builtin == nil {
		status, ok := u.Object["status"]
		fields := u.GetManagedFields()
		u.Object = runtime.DeepCopyJSON(live.Object)
		u.SetManagedFields(fields)
		delete(u.Object, "status")
		if ok {
			u.Object["status"] = status
		}
		return
	}
	u.SetGeneration(live.GetGeneration())
	if subresource == "status" {
		m.keepAllButStatus(u, live)
	} else {
		m.keepStatus(u, live)
		if m.builtin != nil && m.builtin.update != nil {
			m.builtin.update(s, u, live)
		}
		annotated := m.builtin != nil && m.builtin.counts && !maps.Equal(u.GetAnnotations(), live.GetAnnotations())
		if m.typ.Generation && (annotated || m.differs(u.Object, live.Object)) {
			u.SetGeneration(live.GetGeneration() + 1)
		}
	}
	if u.GetUID() == "" {
		u.SetUID(live.GetUID())
	}
	u.SetCreationTimestamp(live.GetCreationTimestamp())
	if at := live.GetDeletionTimestamp(); at != nil {
		u.SetDeletionTimestamp(at)
	}
	if grace := live.GetDeletionGracePeriodSeconds(); grace != nil && u.GetDeletionGracePeriodSeconds() == nil {
		u.SetDeletionGracePeriodSeconds(grace)
	}
}

// keepAllButStatus restores all fields of a built-in type except status and metadata.
func (m *machinery) keepAllButStatus(u, live *unstructured.Unstructured) {
	kept := func(key string, _ any) bool { return key != "metadata" && key != "status" }
	maps.DeleteFunc(u.Object, kept)
	for key, value := range live.Object {
		if kept(key, value) {
			u.Object[key] = value
		}
	}
	if m.builtin.statusKeepsLabels {
		u.SetLabels(live.GetLabels())
	}
}

// keepStatus restores the status.
func (m *machinery) keepStatus(u, live *unstructured.Unstructured) {
	if !m.typ.Status {
		return
	}
	delete(u.Object, "status")
	if status, ok := live.Object["status"]; ok {
		u.Object["status"] = status
	}
}

// differs reports whether the change increments the generation.
func (m *machinery) differs(a, b map[string]any) bool {
	for _, pair := range [][2]map[string]any{{a, b}, {b, a}} {
		for key, value := range pair[0] {
			if key == "metadata" || m.builtin != nil && key == "status" {
				continue
			}
			if !equal(value, pair[1][key]) {
				return true
			}
		}
	}
	return false
}

// validate appends the errors of a custom resource to those of its metadata.
func (s *Schema) validate(subresource string, u, live *unstructured.Unstructured, errs field.ErrorList) field.ErrorList {
	if s.structural == nil {
		return errs
	}
	ctx := context.Background()
	rules := s.rules()
	if live == nil {
		errs = append(errs, sorted(validation.ValidateCustomResource(nil, u.Object, s.validator))...)
		errs = append(errs, schemaobjectmeta.Validate(ctx, nil, u.Object, s.structural, false)...)
		errs = append(errs, structurallisttype.ValidateListSetsAndMaps(nil, s.structural, u.Object)...)
		if rules == nil {
			return errs
		}
		if also := blocking(errs); also != nil {
			return append(errs, also...)
		}
		more, _ := rules.Validate(ctx, nil, s.structural, u.Object, nil, celconfig.RuntimeCELCostBudget)
		return append(errs, more...)
	}
	correlated := common.NewCorrelatedObject(u.Object, live.Object, &model.Structural{Structural: s.structural})
	if subresource == "status" {
		if status, ok := u.Object["status"]; ok && s.status != nil {
			wrong := validation.ValidateCustomResourceUpdate(
				field.NewPath("status"), status, live.Object["status"], s.status, validation.WithRatcheting(correlated.Key("status")))
			errs = append(errs, sorted(wrong)...)
		}
	} else {
		errs = append(errs, sorted(validation.ValidateCustomResourceUpdate(nil, u.Object, live.Object, s.validator, validation.WithRatcheting(correlated)))...)
		errs = append(errs, schemaobjectmeta.Validate(ctx, nil, u.Object, s.structural, false)...)
	}
	if wrong := structurallisttype.ValidateListSetsAndMaps(nil, s.structural, u.Object); len(wrong) > 0 &&
		len(structurallisttype.ValidateListSetsAndMaps(nil, s.structural, live.Object)) == 0 {
		errs = append(errs, wrong...)
	}
	if rules == nil {
		return errs
	}
	if also := blocking(errs); also != nil {
		return append(errs, also...)
	}
	more, _ := rules.Validate(ctx, nil, s.structural, u.Object, live.Object, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated))
	return append(errs, more...)
}

// sorted sorts errors, because their order comes from maps.
func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errs
}

var blocked = []field.ErrorType{
	field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
}

// blocking returns the additional error of kube-apiserver when other errors prevent the evaluation of
// x-kubernetes-validations.
func blocking(errs field.ErrorList) field.ErrorList {
	for _, err := range errs {
		if slices.Contains(blocked, err.Type) {
			return field.ErrorList{field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
		}
	}
	return nil
}

// at returns a nested object, or nil.
func at(o map[string]any, path ...string) map[string]any {
	for _, name := range path {
		o, _ = o[name].(map[string]any)
	}
	return o
}

// fill sets missing fields.
func fill(o map[string]any, values map[string]any) {
	for key, value := range values {
		if is, ok := o[key]; !ok || is == nil {
			o[key] = runtime.DeepCopyJSONValue(value)
		}
	}
}

// sub returns a nested object, and creates it if it is missing.
func sub(o map[string]any, name string) map[string]any {
	is, ok := o[name].(map[string]any)
	if !ok {
		is = map[string]any{}
		o[name] = is
	}
	return is
}

func objects(o map[string]any, name string) []map[string]any {
	list, _ := o[name].([]any)
	var all []map[string]any
	for _, one := range list {
		if is, ok := one.(map[string]any); ok {
			all = append(all, is)
		}
	}
	return all
}

// address returns the next free address. Freed addresses are not reused soon.
func (s *Server) address(st *store) string {
	used := map[any]bool{}
	for _, e := range st.objects {
		used[at(e.object.Object, "spec")["clusterIP"]] = true
	}
	for {
		s.addresses = (s.addresses + 1) % 250
		if ip := fmt.Sprintf("%s.%d", s.o.Services, s.addresses+1); !used[ip] {
			return ip
		}
	}
}

// allocatePorts assigns node ports: a port keeps the node port of the earlier port with its name, otherwise it gets the
// next free one.
func (s *Server) allocatePorts(st *store, spec, was map[string]any) {
	used, had := map[any]bool{}, map[any]any{}
	for _, e := range st.objects {
		for _, p := range objects(at(e.object.Object, "spec"), "ports") {
			used[p["nodePort"]] = true
		}
	}
	for _, p := range objects(was, "ports") {
		had[p["name"]] = p["nodePort"]
	}
	free := func(p map[string]any) bool { return p["nodePort"] == nil || p["nodePort"] == int64(0) }
	for _, p := range objects(spec, "ports") {
		if free(p) && had[p["name"]] != nil {
			p["nodePort"] = had[p["name"]]
		}
		for free(p) {
			s.ports = (s.ports + 1) % 1000
			if port := int64(s.o.NodePorts + s.ports); !used[port] {
				p["nodePort"], used[port] = port, true
			}
		}
	}
}

// selectJob sets the selector and labels of a Job with its UID.
func selectJob(u *unstructured.Unstructured) {
	spec := sub(u.Object, "spec")
	if spec["manualSelector"] == true {
		return
	}
	labels := sub(sub(sub(spec, "template"), "metadata"), "labels")
	uid, name := string(u.GetUID()), u.GetName()
	for key, value := range map[string]string{
		"controller-uid": uid, "job-name": name, "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
	} {
		labels[key] = value
	}
	sub(sub(spec, "selector"), "matchLabels")["batch.kubernetes.io/controller-uid"] = uid
}
