package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// deleteOptions returns the options of a deletion request.
func deleteOptions(q *request) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	values := q.http.URL.Query()
	switch {
	case len(q.body) > 0 && strings.HasPrefix(q.http.Header.Get("Content-Type"), runtime.ContentTypeProtobuf):
		if _, _, err := serializerOf(true, codecs).Serializer.Decode(q.body, nil, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case len(bytes.TrimSpace(q.body)) > 0:
		if err := json.Unmarshal(q.body, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		o.DryRun = values["dryRun"]
		if text := values.Get("propagationPolicy"); text != "" {
			policy := metav1.DeletionPropagation(text)
			o.PropagationPolicy = &policy
		}
		if text := values.Get("gracePeriodSeconds"); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			o.GracePeriodSeconds = &n
		}
	}
	if errs := metavalidation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return o, nil
}

func (s *Server) answerDelete(q *request, w *writing) (*Answer, error) {
	o, err := deleteOptions(q)
	if err != nil {
		return nil, err
	}
	e, gone, err := s.remove(w, o)
	if err != nil {
		return nil, err
	}
	code := http.StatusOK
	if !gone && o.OrphanDependents != nil && !*o.OrphanDependents { //nolint:staticcheck // Old clients say it.
		code = http.StatusAccepted
	}
	if gone && !q.m.returnsDeleted() {
		return success(q, e), nil
	}
	return q.m.answer(code, e, q.shape)
}

func success(q *request, e *entry) *Answer {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: q.name, Group: q.m.typ.GVR.Group, Kind: q.m.typ.GVR.Resource, UID: e.object.GetUID()},
	}
	if q.shape.protobuf {
		if body, err := encodeTyped(status, true, codecs); err == nil {
			return &Answer{Code: http.StatusOK, Header: http.Header{"Content-Type": {runtime.ContentTypeProtobuf}}, Body: body}
		}
	}
	return encoded(http.StatusOK, status)
}

// remove deletes an object, or marks it as being deleted. It reports whether the object has been removed.
func (s *Server) remove(w *writing, o *metav1.DeleteOptions) (*entry, bool, error) {
	st := s.stores[w.resource()]
	key := keyOf(w.namespace, w.name)
	before := st.objects[key]
	if len(o.DryRun) > 0 {
		w.dryRun = true
	}
	if w.m.typ.GVR == namespaces && slices.Contains([]string{"default", "kube-system", "kube-public"}, w.name) {
		return nil, false, apierrors.NewForbidden(w.resource(), w.name, errors.New("this namespace may not be deleted"))
	}
	if before == nil {
		return nil, false, apierrors.NewNotFound(w.resource(), w.name)
	}
	u := before.object
	if err := w.precondition(u, o.Preconditions); err != nil {
		return nil, false, err
	}
	if w.m.typ.GVR == namespaces {
		if e, done, err := s.removeNamespace(w, o, st, key, before); done || err != nil {
			return e, false, err
		}
	}
	after := u.DeepCopy()
	grace, pending := s.graceful(w, o, after)
	if pending {
		return before, false, nil
	}
	finalizers := collected(w.m, after, o)
	changed := !slices.Equal(finalizers, after.GetFinalizers())
	after.SetFinalizers(finalizers)
	if len(finalizers) == 0 {
		unstructured.RemoveNestedField(after.Object, "metadata", "finalizers")
	}
	if err := s.admit(w, "delete", before, nil); err != nil {
		return nil, false, err
	}
	if len(finalizers) > 0 || grace {
		if !grace {
			mark(after, s.now())
		}
		if !changed && same(before.object.Object, after.Object) {
			return before, false, nil
		}
		return s.keep(w, "delete", st, key, before, after), false, nil
	}
	if p := o.Preconditions; p != nil && p.ResourceVersion != nil && changed { // kube-apiserver also compares with an empty version here.
		return nil, false, w.stale(key, "ResourceVersion in precondition: , ResourceVersion in object meta: "+u.GetResourceVersion())
	}
	last := u.DeepCopy()
	if !w.dryRun {
		s.put(st, key, nil)
		s.tell(w, "removed", before, nil)
		last.SetResourceVersion(strconv.FormatUint(s.version, 10))
	}
	return &entry{object: last}, true, nil
}

const (
	otherUID = "the UID in the precondition (%s) does not match the UID in record (%s). " +
		"The object might have been deleted and then recreated"
	otherVersion = "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified"
)

// precondition returns an error if the UID or resource version of the object differs from the precondition.
func (w *writing) precondition(u *unstructured.Unstructured, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	kind := schema.GroupResource{Group: w.m.gvk.Group, Resource: w.m.gvk.Kind}
	uid, version := otherUID, otherVersion
	if w.m.typ.GVR == namespaces {
		kind = w.resource()
		uid = "Precondition failed: UID in precondition: %v, UID in object meta: %v"
		version = "Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v"
	}
	switch {
	case p.UID != nil && *p.UID != u.GetUID():
		return apierrors.NewConflict(kind, w.name, fmt.Errorf(uid, *p.UID, u.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != u.GetResourceVersion():
		return apierrors.NewConflict(kind, w.name, fmt.Errorf(version, *p.ResourceVersion, u.GetResourceVersion()))
	}
	return nil
}

// mark sets the deletion timestamp of an object. The first time, it also increments the generation.
func mark(u *unstructured.Unstructured, now metav1.Time) {
	if u.GetDeletionTimestamp() == nil {
		if g := u.GetGeneration(); g > 0 {
			u.SetGeneration(g + 1)
		}
	}
	if at := u.GetDeletionTimestamp(); at == nil || at.After(now.Time) {
		u.SetDeletionTimestamp(&now)
	}
	var none int64
	u.SetDeletionGracePeriodSeconds(&none)
}

// graceful handles the grace period of a pod. begun is true if a graceful deletion begins now or its period becomes
// shorter. pending is true if an earlier graceful deletion continues unchanged.
func (s *Server) graceful(w *writing, o *metav1.DeleteOptions, u *unstructured.Unstructured) (begun, pending bool) {
	if w.m.typ.GVR != pods {
		return false, false
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		left := u.GetDeletionGracePeriodSeconds()
		if left == nil || *left == 0 {
			return false, false
		}
		if o.GracePeriodSeconds == nil || *o.GracePeriodSeconds >= *left {
			return false, true
		}
		period := *o.GracePeriodSeconds
		if period == 0 {
			return false, false
		}
		moved := metav1.NewTime(at.Add(time.Duration(period-*left) * time.Second))
		if now := s.now(); moved.Before(&now) {
			moved, period = now, 1
		}
		u.SetDeletionTimestamp(&moved)
		u.SetDeletionGracePeriodSeconds(&period)
		return true, false
	}
	period := int64(30)
	if said, ok, _ := unstructured.NestedInt64(u.Object, "spec", "terminationGracePeriodSeconds"); ok {
		period = said
	}
	if o.GracePeriodSeconds != nil {
		period = *o.GracePeriodSeconds
	}
	node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	if node == "" || phase == "Succeeded" || phase == "Failed" {
		period = 0
	}
	if period == 0 {
		return false, false
	}
	at := metav1.NewTime(s.now().Add(time.Duration(period) * time.Second))
	u.SetDeletionTimestamp(&at)
	u.SetDeletionGracePeriodSeconds(&period)
	if g := u.GetGeneration(); g > 0 {
		u.SetGeneration(g + 1)
	}
	return true, false
}

// collected returns the finalizers of an object after a deletion request. The propagation policy of the request adds or
// removes the finalizers of the garbage collector.
func collected(m *machinery, u *unstructured.Unstructured, o *metav1.DeleteOptions) []string {
	was := u.GetFinalizers()
	if m.typ.GVR.Resource == "events" {
		return was
	}
	var foreground, orphan bool
	switch {
	case o.OrphanDependents != nil: //nolint:staticcheck // Old clients say it.
		orphan = *o.OrphanDependents //nolint:staticcheck // See above.
	case o.PropagationPolicy != nil:
		orphan, foreground = *o.PropagationPolicy == metav1.DeletePropagationOrphan, *o.PropagationPolicy == metav1.DeletePropagationForeground
	default:
		orphan, foreground = slices.Contains(was, metav1.FinalizerOrphanDependents), slices.Contains(was, metav1.FinalizerDeleteDependents)
		if !orphan && !foreground {
			orphan = m.builtin != nil && m.builtin.orphans
		}
	}
	var now []string
	for _, f := range was {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			now = append(now, f)
		}
	}
	if orphan {
		now = append(now, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		now = append(now, metav1.FinalizerDeleteDependents)
	}
	if len(now) == len(was) && !slices.ContainsFunc(now, func(f string) bool { return !slices.Contains(was, f) }) {
		return was
	}
	return now
}

// removeNamespace begins the deletion of a namespace. The returned bool is true if the request needs no further work.
func (s *Server) removeNamespace(w *writing, o *metav1.DeleteOptions, st *store, key string, before *entry) (*entry, bool, error) {
	u := before.object
	if u.GetDeletionTimestamp() != nil {
		left, _, _ := unstructured.NestedSlice(u.Object, "spec", "finalizers")
		return before, len(left) > 0, nil
	}
	if err := s.admit(w, "delete", before, nil); err != nil {
		return nil, false, err
	}
	after := u.DeepCopy()
	now := s.now()
	after.SetDeletionTimestamp(&now)
	if err := unstructured.SetNestedField(after.Object, "Terminating", "status", "phase"); err != nil {
		return nil, false, err
	}
	if finalizers := collected(w.m, after, o); len(finalizers) > 0 {
		after.SetFinalizers(finalizers)
	}
	return s.keep(w, "delete", st, key, before, after), true, nil
}

// FinishNamespace acts as the namespace controller: it deletes all objects in a namespace that is being deleted, and
// then the namespace. It reports whether the namespace is gone; an object with a finalizer keeps it.
func (s *Server) FinishNamespace(name string) bool {
	st := s.stores[namespaces.GroupResource()]
	ns := st.objects[name]
	if ns == nil || ns.object.GetDeletionTimestamp() == nil {
		return ns == nil
	}
	as := func(m *machinery, verb, in, name string) *writing {
		return &writing{
			m: m, verb: verb, namespace: in, name: name, user: "system:serviceaccount:kube-system:namespace-controller", manager: "kube-controller-manager",
		}
	}
	left, done := false, map[schema.GroupResource]bool{}
	for _, m := range s.order {
		gr := m.typ.GVR.GroupResource()
		if !m.typ.Namespaced || done[gr] {
			continue
		}
		done[gr] = true
		of := s.stores[gr]
		at, _ := slices.BinarySearch(of.keys, name+"/")
		for _, key := range slices.Clone(of.keys[at:]) {
			object, ok := strings.CutPrefix(key, name+"/")
			if !ok {
				break
			}
			if of.objects[key] == nil {
				continue
			}
			policy := metav1.DeletePropagationBackground
			_, gone, err := s.remove(as(m, "delete", name, object), &metav1.DeleteOptions{PropagationPolicy: &policy})
			left = left || !gone || err != nil
		}
	}
	if left {
		return false
	}
	after := ns.object.DeepCopy()
	unstructured.RemoveNestedField(after.Object, "spec", "finalizers")
	w := as(s.types[namespaces], "update", "", name)
	w.subresource = "finalize"
	if len(after.GetFinalizers()) > 0 {
		if !same(ns.object.Object, after.Object) {
			s.keep(w, "update", st, name, ns, after)
		}
		return false
	}
	s.put(st, name, nil)
	s.tell(w, "removed", ns, nil)
	return true
}

// Orphan is an object without any existing owner.
type Orphan struct {
	GVR       schema.GroupVersionResource
	Namespace string
	Name      string
	UID       types.UID
}

// Orphans returns the objects that the garbage collector would delete, because none of their owners exists.
func (s *Server) Orphans() []Orphan {
	uids := map[types.UID]bool{}
	for _, st := range s.stores {
		for _, e := range st.objects {
			uids[e.object.GetUID()] = true
		}
	}
	var all []Orphan
	done := map[schema.GroupResource]bool{}
	for _, m := range s.order {
		gr := m.typ.GVR.GroupResource()
		if done[gr] {
			continue
		}
		done[gr] = true
		st := s.stores[gr]
		for _, key := range st.keys {
			u := st.objects[key].object
			owners := u.GetOwnerReferences()
			if len(owners) == 0 || u.GetDeletionTimestamp() != nil || slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return uids[o.UID] }) {
				continue
			}
			all = append(all, Orphan{m.typ.GVR, u.GetNamespace(), u.GetName(), u.GetUID()})
		}
	}
	return all
}

// deleteAll deletes all objects that the request selects.
func (s *Server) deleteAll(q *request, w *writing) (*Answer, error) {
	o, err := deleteOptions(q)
	if err != nil {
		return nil, err
	}
	values := q.http.URL.Query()
	c, err := q.m.choose(values, q.namespace)
	if err != nil {
		return nil, err
	}
	l, err := s.page(q.m, c, values)
	if err != nil {
		return nil, err
	}
	for _, e := range l.entries {
		one := *w
		one.namespace, one.name = e.object.GetNamespace(), e.object.GetName()
		if _, _, err := s.remove(&one, o.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	body, err := q.m.showList(l, q.shape)
	if err != nil {
		return nil, err
	}
	return &Answer{Code: http.StatusOK, Header: http.Header{"Content-Type": {q.shape.media()}}, Body: body}, nil
}

var (
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	budgets = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
)

// evict deletes a pod unless a PodDisruptionBudget forbids it.
func (s *Server) evict(q *request, w *writing) (*Answer, error) {
	var eviction policyv1.Eviction
	if strings.HasPrefix(q.http.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		if _, _, err := serializerOf(true, typed).Serializer.Decode(q.body, nil, &eviction); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else if err := json.Unmarshal(q.body, &eviction); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o := eviction.DeleteOptions
	if o == nil {
		o = &metav1.DeleteOptions{}
	}
	pod := s.stores[pods.GroupResource()].objects[keyOf(q.namespace, q.name)]
	if pod == nil {
		return nil, apierrors.NewNotFound(pods.GroupResource(), q.name)
	}
	phase, _, _ := unstructured.NestedString(pod.object.Object, "status", "phase")
	runs := phase != "Pending" && phase != "Succeeded" && phase != "Failed" && pod.object.GetDeletionTimestamp() == nil
	if st := s.stores[budgets.GroupResource()]; st != nil && runs {
		if err := s.disrupt(st, w, pod); err != nil {
			return nil, err
		}
	}
	w.subresource = ""
	if _, _, err := s.remove(w, o); err != nil {
		return nil, err
	}
	return encoded(http.StatusCreated, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	}), nil
}

// disrupt uses one disruption of the budget that covers a pod.
func (s *Server) disrupt(st *store, w *writing, pod *entry) error {
	for _, key := range slices.Clone(st.keys) {
		e := st.objects[key]
		if e.object.GetNamespace() != w.namespace {
			continue
		}
		var b policyv1.PodDisruptionBudget
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.object.Object, &b); err != nil {
			return err
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.labels)) {
			continue
		}
		if b.Status.ObservedGeneration < b.Generation || b.Status.DisruptionsAllowed <= 0 {
			err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			if b.Status.ObservedGeneration < b.Generation {
				err.ErrStatus.Details.RetryAfterSeconds = 10
			}
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
				Type: policyv1.DisruptionBudgetCause,
				Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
					b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy),
			})
			return err
		}
		if w.dryRun {
			continue
		}
		after := e.object.DeepCopy()
		if err := unstructured.SetNestedField(after.Object, int64(b.Status.DisruptionsAllowed-1), "status", "disruptionsAllowed"); err != nil {
			return err
		}
		by := &writing{m: s.types[budgets], verb: "update", namespace: w.namespace, name: b.Name, subresource: "status", user: w.user, manager: w.manager}
		s.keep(by, "update", st, key, e, after)
	}
	return nil
}
