package apiserver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func unsupportedPatch(m *machinery) error {
	strategic := ""
	if m.builtin != nil {
		strategic = " application/strategic-merge-patch+json,"
	}
	return unsupportedMedia(unknownFormat + "application/json-patch+json, application/merge-patch+json," + strategic + " application/apply-patch+yaml")
}

const unknownFormat = "the body of the request was in an unknown format - accepted media types include: "

func unsupportedMedia(message string) *statusError {
	return &statusError{metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: message,
	}}
}

// jsonPatchOp is an operation of a JSON patch.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// patched returns the object after a JSON patch, a merge patch, or a strategic merge patch.
func (s *Server) patched(w *writing, live *unstructured.Unstructured) (map[string]any, error) {
	text, err := json.Marshal(live.Object)
	if err != nil {
		return nil, err
	}
	switch w.patch {
	case types.JSONPatchType:
		var ops []jsonPatchOp
		if _, err := kjson.UnmarshalStrict(w.body, &ops); err != nil {
			return nil, apierrors.NewBadRequest("error decoding patch: " + strings.ReplaceAll(err.Error(), "apiserver.jsonPatchOp", "handlers.jsonPatchOp"))
		}
		p, err := jsonpatch.DecodePatch(w.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if text, err = p.Apply(text); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	case types.MergePatchType:
		if text, err = jsonpatch.MergePatch(text, w.body); errors.Is(err, jsonpatch.ErrBadJSONPatch) {
			return nil, apierrors.NewBadRequest(err.Error())
		} else if err != nil {
			return nil, err
		}
	case types.StrategicMergePatchType:
		typed, err := known.New(w.m.gvk)
		if err != nil {
			return nil, err
		}
		var patch map[string]any
		if err := json.Unmarshal(w.body, &patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(live.Object), patch, typed)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if o, err = w.m.normal(o); err != nil {
			return nil, invalidPatch(fmt.Sprintf("%+v", patch), err)
		}
		return o, nil
	default:
		return nil, unsupportedPatch(w.m)
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, invalidPatch(string(text), err)
	}
	if o, err = w.m.normal(o); err != nil {
		return nil, invalidPatch(string(text), err)
	}
	return o, nil
}

// invalidPatch is the error for a patch whose result is not an object of the type.
func invalidPatch(given string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), given, err.Error())})
}

// apply returns the object after a server-side apply.
func (s *Server) apply(w *writing, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var patch map[string]any
	var err error
	if trimmed := bytes.TrimSpace(w.body); len(trimmed) > 0 && trimmed[0] == '{' {
		err = json.Unmarshal(w.body, &patch)
	} else {
		err = yaml.Unmarshal(w.body, &patch)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	merged, err := w.fieldsFor().Apply(live, &unstructured.Unstructured{Object: patch}, w.manager, w.force)
	if conflict := (*apierrors.StatusError)(nil); errors.As(err, &conflict) && conflict.ErrStatus.Details != nil {
		// Their order is random.
		slices.SortFunc(conflict.ErrStatus.Details.Causes, func(a, b metav1.StatusCause) int {
			return cmp.Or(cmp.Compare(a.Message, b.Message), cmp.Compare(a.Field, b.Field))
		})
	}
	if err != nil {
		return nil, err
	}
	u, ok := merged.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("apply gave a %T", merged)
	}
	o, err := w.m.normal(u.Object)
	if err != nil {
		return nil, err
	}
	after := &unstructured.Unstructured{Object: o}
	s.date(live, after)
	uid := after.GetUID()
	if live.GetUID() == "" && uid != "" {
		return nil, apierrors.NewConflict(w.resource(), w.name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := sameNamespace(w, after); err != nil {
		return nil, err
	}
	return after, checkName(w, after)
}

// nothing returns an empty object, with which an apply compares a new object.
func (m *machinery) nothing() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if m.builtin != nil {
		if o, err := m.empty(map[string]any{}); err == nil {
			u.Object = o
		}
	}
	u.SetGroupVersionKind(m.gvk)
	return u
}

// applyNew creates an object by server-side apply.
func (s *Server) applyNew(w *writing) (*entry, error) {
	after, err := s.apply(w, w.m.nothing())
	if err != nil {
		return nil, err
	}
	if err := s.lifecycle(w, after.GetName()); err != nil {
		return nil, err
	}
	s.mutate(w, nil, after)
	wipe(after)
	return s.insert(w, after)
}

func wipe(u *unstructured.Unstructured) {
	meta, _ := u.Object["metadata"].(map[string]any)
	for _, name := range []string{"creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
		delete(meta, name)
	}
}
