package apiserver

import (
	"fmt"
	"net/http"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// scaleOf returns the Scale of an object.
func scaleOf(u *unstructured.Unstructured) *autoscalingv1.Scale {
	spec, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	status, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			CreationTimestamp: u.GetCreationTimestamp(),
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: int32(spec)}, Status: autoscalingv1.ScaleStatus{Replicas: int32(status)},
	}
	selector := &metav1.LabelSelector{}
	if is := at(u.Object, "spec", "selector"); is != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(is, selector); err == nil {
			if s, err := metav1.LabelSelectorAsSelector(selector); err == nil {
				scale.Status.Selector = s.String()
			}
		}
	}
	return scale
}

func (m *machinery) answerScale(code int, e *entry, f shape) (*Answer, error) {
	scale := scaleOf(e.object)
	if f.protobuf && !f.metadata {
		body, err := encodeTyped(scale, true, typed)
		return &Answer{Code: code, Header: http.Header{"Content-Type": {runtime.ContentTypeProtobuf}}, Body: body}, err
	}
	return encoded(code, scale), nil
}

// scaleMachine handles the subresource scale. client-go has no field schema for its type.
var scaleMachine = sync.OnceValue(func() *machinery {
	gvk := scaleType.gvk()
	models := metadataModels()
	integers := new(spec.Schema).Typed("object", "").SetProperty("replicas", *spec.Int32Property())
	status := new(spec.Schema).Typed("object", "").SetProperty("replicas", *spec.Int32Property()).SetProperty("selector", *spec.StringProperty())
	model := new(spec.Schema).Typed("object", "").
		SetProperty("metadata", *spec.RefSchema(reference + objectMeta)).
		SetProperty("apiVersion", *spec.StringProperty()).SetProperty("kind", *spec.StringProperty()).
		SetProperty("spec", *integers).SetProperty("status", *status)
	model.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}})
	models["scale"] = model
	fields, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		panic(err) // The models are valid.
	}
	m := &machinery{typ: scaleType, gvk: gvk, storage: gvk.GroupVersion(), fields: fields, builtin: &rules{}}
	m.main, err = managedfields.NewDefaultFieldManager(m.fields, converter{m}, defaulter{m}, creator{m}, gvk, gvk.GroupVersion(), "scale", nil)
	if err != nil {
		panic(err) // Only a missing type converter is an error.
	}
	return m
})

var scaleType = Type{GVR: schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "scales"}, Kind: "Scale", Namespaced: true}

// rescale changes the number of replicas by the subresource scale.
func (s *Server) rescale(q *request, w *writing) (*Answer, error) {
	e, err := s.scaled(w, q.http.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	return q.m.answerScale(http.StatusOK, e, q.shape)
}

func (s *Server) scaled(w *writing, media string) (*entry, error) {
	st := s.stores[w.resource()]
	key := keyOf(w.namespace, w.name)
	before := st.objects[key]
	if before == nil {
		return nil, apierrors.NewNotFound(w.resource(), w.name)
	}
	m := scaleMachine()
	gvk := m.gvk
	parent := before.object
	gv := w.m.gvk.GroupVersion()
	paths := managedfields.ResourcePathMappings{gv.String(): fieldpath.MakePathOrDie("spec", "replicas")}
	handler := managedfields.NewScaleHandler(parent.GetManagedFields(), gv, paths)
	entries, err := handler.ToSubresource()
	if err != nil {
		return nil, err
	}
	scale := scaleOf(parent)
	scale.ManagedFields = entries
	shown, err := plain(scale, gvk)
	if err != nil {
		return nil, err
	}
	live := &unstructured.Unstructured{Object: shown}
	inner := *w
	inner.m, inner.subresource = m, ""
	if w.verb == "update" {
		if inner.object, err = m.decode(w.body, media); err != nil {
			return nil, err
		}
	}
	if w.patch == types.ApplyYAMLPatchType {
		inner.verb = "apply"
	}
	after, err := s.changed(&inner, live)
	if err != nil {
		return nil, err
	}
	replicas, found, err := unstructured.NestedInt64(after.Object, "spec", "replicas")
	if err != nil || !found {
		replicas = 0
	}
	if replicas < 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.replicas: %d is negative", replicas))
	}
	if uid := after.GetUID(); uid != "" && uid != parent.GetUID() {
		return nil, w.stale(key, fmt.Sprintf("UID in precondition: %v, UID in object meta: %v", uid, parent.GetUID()))
	}
	object := runtime.DeepCopyJSON(w.m.object(before).Object)
	u := &unstructured.Unstructured{Object: object}
	if err := unstructured.SetNestedField(u.Object, replicas, "spec", "replicas"); err != nil {
		return nil, err
	}
	merged, err := managedfields.NewScaleHandler(parent.GetManagedFields(), gv, paths).ToParent(after.GetManagedFields())
	if err != nil {
		return nil, err
	}
	u.SetManagedFields(merged)
	u.SetResourceVersion(after.GetResourceVersion())
	return s.replace(w, st, key, before, w.m.object(before), u)
}
