package apiserver

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// writing is a write in progress.
type writing struct {
	m                            *machinery
	verb                         string // create, update, patch, apply or delete.
	namespace, name, subresource string
	user, manager                string
	dryRun, force                bool
	patch                        types.PatchType
	body                         []byte
	object                       map[string]any // The new object.
}

func (w *writing) resource() schema.GroupResource { return w.m.typ.GVR.GroupResource() }

// write handles a write request.
func (s *Server) write(q *request) (*Answer, error) {
	values := q.http.URL.Query()
	w := &writing{
		m: q.m, verb: q.verb, namespace: q.namespace, name: q.name, subresource: q.subresource, user: q.user,
		manager: managerOf(values, q.http.UserAgent()), dryRun: len(values["dryRun"]) > 0, body: q.body,
	}
	if err := checkOptions(q.m, q.verb, values, q.http); err != nil {
		return nil, err
	}
	switch q.verb {
	case "delete":
		return s.answerDelete(q, w)
	case "deletecollection":
		return s.deleteAll(q, w)
	case "patch":
		media, _, _ := strings.Cut(q.http.Header.Get("Content-Type"), ";")
		w.patch = types.PatchType(media)
		w.force, _ = strconv.ParseBool(values.Get("force"))
		if w.patch == types.ApplyYAMLPatchType {
			w.verb = "apply"
		} else if !stdjson.Valid(q.body) {
			return nil, apierrors.NewBadRequest("invalid JSON patch")
		}
	default:
		if q.subresource == "eviction" {
			return s.evict(q, w)
		}
		if q.subresource == "token" {
			return s.issue(q)
		}
		if q.subresource == "scale" {
			break
		}
		object, err := q.m.decode(q.body, q.http.Header.Get("Content-Type"))
		if err != nil {
			return nil, err
		}
		w.object = object
	}
	if q.subresource == "scale" {
		return s.rescale(q, w)
	}
	code := http.StatusOK
	e, made, err := s.store(w)
	if err != nil {
		return nil, err
	}
	if made {
		code = http.StatusCreated
	}
	return q.m.answer(code, e, q.shape)
}

// managerOf returns the field manager of a request.
func managerOf(values url.Values, agent string) string {
	if m := values.Get("fieldManager"); m != "" {
		return m
	}
	name, _, _ := strings.Cut(agent, "/")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, name)
}

// checkOptions rejects invalid options.
func checkOptions(m *machinery, verb string, values url.Values, r *http.Request) error {
	kind := map[string]string{"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}[verb]
	if kind == "" {
		return nil
	}
	dryRun, manager, validation := values["dryRun"], values.Get("fieldManager"), values.Get("fieldValidation")
	var errs field.ErrorList
	switch verb {
	case "create":
		errs = metavalidation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
	case "update":
		errs = metavalidation.ValidateUpdateOptions(&metav1.UpdateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
	case "patch":
		media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		switch types.PatchType(media) {
		case types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType:
		case types.StrategicMergePatchType:
			if m.builtin == nil {
				return unsupportedPatch(m)
			}
		default:
			if m.builtin == nil {
				return unsupportedPatch(m)
			}
			unsupported := unsupportedMedia("415: Unsupported Media Type")
			unsupported.status.Details = &metav1.StatusDetails{}
			return unsupported
		}
		o := &metav1.PatchOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation}
		if text := values.Get("force"); text != "" {
			force, err := strconv.ParseBool(text)
			if err != nil {
				return apierrors.NewBadRequest(err.Error())
			}
			o.Force = &force
		}
		errs = metavalidation.ValidatePatchOptions(o, types.PatchType(media))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
	}
	return nil
}

// decode decodes the body of a creation or an update, and sets defaults.
func (m *machinery) decode(body []byte, contentType string) (map[string]any, error) {
	media, _, _ := strings.Cut(contentType, ";")
	switch media {
	case runtime.ContentTypeProtobuf:
		if m.builtin == nil {
			break
		}
		o, _, err := serializerOf(true, typed).Serializer.Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		object, err := plain(o, m.gvk)
		if err != nil {
			return nil, err
		}
		m.setDefaults(object)
		return object, nil
	case "", runtime.ContentTypeJSON:
		return m.decodeJSON(body)
	case runtime.ContentTypeYAML:
		text, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return m.decodeJSON(text)
	}
	return nil, unsupportedMedia(unknownFormat + "application/json, application/yaml")
}

func (m *machinery) decodeJSON(body []byte) (map[string]any, error) {
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil || o == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("couldn't get version/kind; json parse error: %v", err))
	}
	u := unstructured.Unstructured{Object: o}
	if gv, kind := u.GetAPIVersion(), u.GetKind(); m.builtin != nil && (gv != "" && gv != m.gvk.GroupVersion().String() || kind != "" && kind != m.gvk.Kind) {
		said := schema.FromAPIVersionAndKind(gv, kind)
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: no kind %q is registered for version %q in scheme %q",
			said.Kind, m.gvk.Version, m.gvk.Kind, kind, gv, "pkg/runtime/scheme.go:111"))
	}
	if m.builtin == nil && u.GetKind() == "" {
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("the object provided is unrecognized (must be of type %s): Object 'Kind' is missing in '%s'", m.gvk.Kind, body))
	}
	if gv := u.GetAPIVersion(); gv != "" && gv != m.gvk.GroupVersion().String() {
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gv, m.gvk.GroupVersion()))
	}
	if kind := u.GetKind(); kind != "" && kind != m.gvk.Kind {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: m.gvk.Group, Kind: kind}, u.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("kind"), kind, "must be "+m.gvk.Kind),
		})
	}
	o, err := m.normal(o)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", m.gvk.Kind, m.gvk.Version, m.gvk.Kind, err))
	}
	return o, nil
}

// store creates or changes an object, and reports whether it is new.
func (s *Server) store(w *writing) (*entry, bool, error) {
	if w.verb == "create" {
		e, err := s.create(w)
		return e, true, err
	}
	st := s.stores[w.resource()]
	key := keyOf(w.namespace, w.name)
	before := st.objects[key]
	creates := w.verb == "apply" || w.verb == "update" && w.m.builtin != nil && w.m.builtin.createdByUpdate
	if before == nil && (!creates || w.subresource != "") {
		return nil, false, apierrors.NewNotFound(w.resource(), w.name)
	}
	if w.verb == "update" {
		u := unstructured.Unstructured{Object: w.object}
		if err := sameNamespace(w, &u); err != nil {
			return nil, false, err
		}
		if u.GetName() != w.name {
			if u.GetName() == "" {
				return nil, false, apierrors.NewBadRequest("name must be provided")
			}
			return nil, false, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), w.name))
		}
		was := types.UID("")
		if before != nil {
			was = before.object.GetUID()
		}
		if uid := u.GetUID(); uid != "" && uid != was {
			return nil, false, w.stale(key, fmt.Sprintf("UID in precondition: %v, UID in object meta: %v", uid, was))
		}
	}
	if before == nil && w.verb == "update" {
		e, err := s.create(w)
		return e, true, err
	}
	if before == nil {
		e, err := s.applyNew(w)
		return e, true, err
	}
	live := w.m.object(before)
	after, err := s.changed(w, live)
	if err != nil {
		return nil, false, err
	}
	e, err := s.replace(w, st, key, before, live, after)
	return e, false, err
}

// etcdKey returns the key of an object in kube-apiserver's etcd. For a dry run it lacks the prefix.
func (w *writing) etcdKey(key string) string {
	m, prefix := w.m, "/registry/"
	if w.dryRun {
		prefix = "/"
	}
	switch {
	case m.builtin == nil:
		return prefix + m.typ.GVR.Group + "/" + m.typ.GVR.Resource + "/" + key
	case m.builtin.prefix != "":
		return prefix + m.builtin.prefix + "/" + key
	}
	return prefix + m.typ.GVR.Resource + "/" + key
}

// stale returns the Conflict error for a write whose UID or resourceVersion differs from that of the stored object.
func (w *writing) stale(key, why string) error {
	return apierrors.NewConflict(w.resource(), w.name,
		fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: %s", w.etcdKey(key), why))
}

func sameNamespace(w *writing, u *unstructured.Unstructured) error {
	ns := u.GetNamespace()
	switch {
	case ns == w.namespace:
	case ns == "":
		u.SetNamespace(w.namespace)
	case !w.m.typ.Namespaced:
		u.SetNamespace("")
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// fieldsFor returns the field manager of the resource or its status.
func (w *writing) fieldsFor() *managedfields.FieldManager {
	if w.subresource == "status" {
		return w.m.status
	}
	return w.m.main
}

// changed returns the object after the write, with updated managed fields.
func (s *Server) changed(w *writing, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var after *unstructured.Unstructured
	switch w.verb {
	case "update":
		after = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(w.object)}
		return s.manage(w, live, after), nil
	case "apply":
		return s.apply(w, live)
	}
	object, err := s.patched(w, live)
	if err != nil {
		return nil, err
	}
	after = s.manage(w, live, &unstructured.Unstructured{Object: object})
	if err := sameNamespace(w, after); err != nil {
		return nil, err
	}
	return after, checkName(w, after)
}

func checkName(w *writing, u *unstructured.Unstructured) error {
	switch u.GetName() {
	case w.name:
		return nil
	case "":
		return apierrors.NewBadRequest("name must be provided")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), w.name))
}

// manage records the manager of changed fields.
func (s *Server) manage(w *writing, live, after *unstructured.Unstructured) *unstructured.Unstructured {
	o, _ := w.fieldsFor().UpdateNoErrors(live, after, w.manager).(*unstructured.Unstructured)
	s.date(live, o)
	return o
}

// date sets the time of the server in new entries of managedFields.
func (s *Server) date(live, after *unstructured.Unstructured) {
	entries, _, _ := unstructured.NestedFieldNoCopy(after.Object, "metadata", "managedFields")
	all, _ := entries.([]any)
	if len(all) == 0 {
		return
	}
	was, _, _ := unstructured.NestedFieldNoCopy(live.Object, "metadata", "managedFields")
	old, _ := was.([]any)
	now := s.now().UTC().Format(time.RFC3339)
	type id struct{ manager, operation, version, subresource any }
	of := func(m map[string]any) id { return id{m["manager"], m["operation"], m["apiVersion"], m["subresource"]} }
	for _, e := range all {
		m, ok := e.(map[string]any)
		if !ok || m["time"] == nil {
			continue
		}
		same := slices.ContainsFunc(old, func(o any) bool {
			before, ok := o.(map[string]any)
			return ok && of(before) == of(m) && before["time"] == m["time"]
		})
		if !same {
			m["time"] = now
		}
	}
	// The field manager sorted them by the time of this machine.
	slices.SortStableFunc(all, func(a, b any) int {
		x, _ := a.(map[string]any)
		y, _ := b.(map[string]any)
		for _, key := range []string{"operation", "time", "manager", "apiVersion", "subresource"} {
			p, _ := x[key].(string)
			q, _ := y[key].(string)
			if c := cmp.Compare(p, q); c != 0 {
				return c
			}
		}
		return 0
	})
}

func (s *Server) now() metav1.Time { return metav1.NewTime(s.o.Now().UTC().Truncate(time.Second)) }

// create stores a new object.
func (s *Server) create(w *writing) (*entry, error) {
	u := &unstructured.Unstructured{Object: w.object}
	if _, ok := u.Object["metadata"].(map[string]any); !ok {
		u.Object["metadata"] = map[string]any{}
	}
	wipe(u)
	if err := sameNamespace(w, u); err != nil {
		return nil, err
	}
	u = s.manage(w, w.m.nothing(), u)
	if err := s.lifecycle(w, cmp.Or(u.GetName(), u.GetGenerateName(), "Unknown")); err != nil {
		return nil, err
	}
	s.mutate(w, nil, u)
	return s.insert(w, u)
}

// insert stores a new object after it has set the fields of the server.
func (s *Server) insert(w *writing, u *unstructured.Unstructured) (*entry, error) {
	st := s.stores[w.resource()]
	u.SetCreationTimestamp(s.now())
	u.SetUID(s.o.UID())
	if u.GetName() == "" && u.GetGenerateName() != "" {
		s.names++
		u = u.DeepCopy() // As in kube-apiserver. Otherwise a Job would share labels with its template.
		u.SetName(generated(u.GetGenerateName(), s.names))
	}
	w.name = u.GetName()
	w.m.prepareCreate(s, u)
	if errs := w.m.validateCreate(u); len(errs) > 0 {
		return nil, apierrors.NewInvalid(w.m.gvk.GroupKind(), u.GetName(), errs)
	}
	unsettled := w.m.builtin != nil && w.m.builtin.unsettled
	if w.m.builtin != nil && w.m.builtin.reread != nil {
		unsettled = w.m.builtin.reread(u.Object)
	}
	stored := &unstructured.Unstructured{Object: inVersion(u.Object, w.m.storage.String())}
	if err := s.admit(w, w.verb, nil, stored); err != nil {
		return nil, err
	}
	if v := u.GetResourceVersion(); w.verb == "create" && v != "" && v != "0" && !w.dryRun {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	key := keyOf(w.namespace, w.name)
	if is := st.objects[key]; is != nil {
		err := apierrors.NewAlreadyExists(w.resource(), w.name)
		if is.object.GetDeletionTimestamp() != nil {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return nil, err
	}
	e := s.keep(w, w.verb, st, key, nil, stored)
	e.unsettled = unsettled
	return e, nil
}
