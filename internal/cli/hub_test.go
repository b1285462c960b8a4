package cli

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// fakeHub is an API server with a few types, for tests of commands. It has no controllers, so objects change only if
// the test or the command changes them.
type fakeHub struct {
	*httptest.Server

	mu      sync.Mutex
	changed *sync.Cond
	objects map[fakeKey]*unstructured.Unstructured
	log     []fakeEvent
	types   []fakeType
	// before is called for each write request, before it is executed; may be nil.
	before func(method, resource string)
}

type fakeKey struct {
	resource string
	types.NamespacedName
}

type fakeEvent struct {
	version   int
	eventType string
	resource  string
	object    *unstructured.Unstructured
}

// fakeType is a type that the fake hub serves.
type fakeType struct {
	gv       schema.GroupVersion
	resource metav1.APIResource
}

// fakeTypes are the types that the fake hub serves by default.
var fakeTypes = []fakeType{
	{schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "namespaces", Kind: "Namespace", ShortNames: []string{"ns"}}},
	{schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true}},
	{schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, ShortNames: []string{"cm"}}},
	{schema.GroupVersion{Group: "apps", Version: "v1"}, metav1.APIResource{Name: "deployments", Kind: "Deployment", Namespaced: true, ShortNames: []string{"deploy"}}},
	{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, metav1.APIResource{Name: "clusterroles", Kind: "ClusterRole"}},
	{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, metav1.APIResource{Name: "clusterrolebindings", Kind: "ClusterRoleBinding"}},
	{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, metav1.APIResource{Name: "roles", Kind: "Role", Namespaced: true}},
	{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, metav1.APIResource{Name: "rolebindings", Kind: "RoleBinding", Namespaced: true}},
	{schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "pods", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"}}},
	{schema.GroupVersion{Group: "apps", Version: "v1"}, metav1.APIResource{Name: "replicasets", Kind: "ReplicaSet", Namespaced: true, ShortNames: []string{"rs"}}},
	{refractv1beta1.GroupVersion, metav1.APIResource{
		Name: "serviceinjectionpolicies", Kind: "ServiceInjectionPolicy", Namespaced: true, ShortNames: []string{"sip"},
	}},
	{refractv1alpha1.GroupVersion, metav1.APIResource{Name: "propagations", Kind: "Propagation", Namespaced: true}},
	{refractv1alpha1.GroupVersion, metav1.APIResource{Name: "clusterpropagations", Kind: "ClusterPropagation"}},
	{corev1alpha1.GroupVersion, metav1.APIResource{Name: "federatedclusters", Kind: "FederatedCluster"}},
	{corev1alpha1.GroupVersion, metav1.APIResource{Name: "propagationpolicies", Kind: "PropagationPolicy", Namespaced: true}},
	{corev1alpha1.GroupVersion, metav1.APIResource{Name: "clusterpropagationpolicies", Kind: "ClusterPropagationPolicy"}},
}

// newFakeHub returns a hub with the objects.
func newFakeHub(objects []*unstructured.Unstructured) *fakeHub {
	return startFakeHub(objects, fakeTypes, func(h http.Handler) http.Handler { return h })
}

// startFakeHub is like newFakeHub, but has other types. behind returns a handler that wraps the handler of all
// requests.
func startFakeHub(objects []*unstructured.Unstructured, types []fakeType, behind func(http.Handler) http.Handler) *fakeHub {
	h := &fakeHub{objects: map[fakeKey]*unstructured.Unstructured{}, types: types}
	h.changed = sync.NewCond(&h.mu)
	system := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	system.SetName(metav1.NamespaceSystem)
	for _, o := range append(objects, system) {
		h.put(o)
	}
	h.Server = httptest.NewTLSServer(behind(h))
	return h
}

// put creates or replaces the object.
func (h *fakeHub) put(o *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store(h.key(o), o)
}

// remove removes the object with the same type, namespace and name.
func (h *fakeHub) remove(o *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(h.key(o))
}

func (h *fakeHub) key(o *unstructured.Unstructured) fakeKey {
	for _, t := range h.types {
		if t.resource.Kind == o.GetKind() {
			return fakeKey{t.resource.Name, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
		}
	}
	panic("the fake hub has no kind " + o.GetKind())
}

func (h *fakeHub) store(key fakeKey, o *unstructured.Unstructured) {
	o = o.DeepCopy()
	eventType := "ADDED"
	if was := h.objects[key]; was != nil {
		eventType = "MODIFIED"
		o.SetUID(was.GetUID())
	} else if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%s-%s", key.resource, key.NamespacedName)))
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		h.drop(key)
		return
	}
	h.objects[key] = o
	h.record(eventType, key.resource, o)
}

func (h *fakeHub) drop(key fakeKey) {
	if o := h.objects[key]; o != nil {
		delete(h.objects, key)
		h.record("DELETED", key.resource, o.DeepCopy())
	}
}

func (h *fakeHub) record(eventType, resource string, o *unstructured.Unstructured) {
	version := len(h.log) + 1
	o.SetResourceVersion(strconv.Itoa(version))
	h.log = append(h.log, fakeEvent{version, eventType, resource, o})
	h.changed.Broadcast()
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if path[0] == "version" {
		answer(w, map[string]any{"gitVersion": "v1.35.0"})
		return
	}
	if h.discover(w, path) {
		return
	}
	if strings.HasSuffix(r.URL.Path, "/token") {
		answer(w, map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": map[string]any{"token": memberToken}})
		return
	}
	path = path[2:]
	if r.URL.Path[:5] == "/apis" {
		path = path[1:]
	}
	key := fakeKey{}
	if len(path) > 2 && path[0] == "namespaces" {
		key.Namespace, path = path[1], path[2:]
	}
	key.resource = path[0]
	if len(path) > 1 {
		key.Name = path[1]
	}
	switch {
	case r.Method != http.MethodGet:
		h.write(w, r, key)
	case key.Name != "":
		h.get(w, key)
	case r.URL.Query().Get("watch") != "":
		h.watch(w, r, key)
	default:
		h.list(w, r, key)
	}
}

func answer(w io.Writer, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler) // The client has ended the connection.
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	answer(w, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason),
	})
}

// discover responds to a discovery request. It returns false if the request is not about discovery.
func (h *fakeHub) discover(w io.Writer, path []string) bool {
	gv := schema.GroupVersion{}
	switch {
	case len(path) == 1 && path[0] == "api":
		answer(w, metav1.APIVersions{Versions: []string{"v1"}})
		return true
	case len(path) == 1 && path[0] == "apis":
		list := metav1.APIGroupList{}
		for _, t := range h.types {
			version := metav1.GroupVersionForDiscovery{GroupVersion: t.gv.String(), Version: t.gv.Version}
			group := metav1.APIGroup{Name: t.gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
			if t.gv.Group != "" && !slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == group.Name }) {
				list.Groups = append(list.Groups, group)
			}
		}
		answer(w, list)
		return true
	case len(path) == 2 && path[0] == "api":
		gv.Version = path[1]
	case len(path) == 3 && path[0] == "apis":
		gv.Group, gv.Version = path[1], path[2]
	default:
		return false
	}
	list := metav1.APIResourceList{GroupVersion: gv.String()}
	for _, t := range h.types {
		if t.gv == gv {
			resource := t.resource
			resource.SingularName = strings.ToLower(resource.Kind)
			resource.Verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
			list.APIResources = append(list.APIResources, resource)
		}
	}
	answer(w, list)
	return true
}

func (h *fakeHub) get(w http.ResponseWriter, key fakeKey) {
	h.mu.Lock()
	o := h.objects[key]
	h.mu.Unlock()
	if o == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	answer(w, o.Object)
}

// asked reports whether the object belongs to the result of a list or watch request.
func asked(r *http.Request, key fakeKey, resource string, o *unstructured.Unstructured) bool {
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	name, named := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	return err == nil && key.resource == resource && selector.Matches(labels.Set(o.GetLabels())) &&
		(key.Namespace == "" || key.Namespace == o.GetNamespace()) && (!named || name == o.GetName())
}

func (h *fakeHub) list(w http.ResponseWriter, r *http.Request, key fakeKey) {
	h.mu.Lock()
	var found []*unstructured.Unstructured
	for k, o := range h.objects {
		if asked(r, key, k.resource, o) {
			found = append(found, o)
		}
	}
	version := strconv.Itoa(len(h.log))
	h.mu.Unlock()
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	items := make([]any, len(found))
	list := map[string]any{"items": items, "metadata": map[string]any{"resourceVersion": version}}
	metadataOnly := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
	if metadataOnly {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	} else {
		for _, t := range h.types {
			if t.resource.Name == key.resource {
				list["apiVersion"], list["kind"] = t.gv.String(), t.resource.Kind+"List"
			}
		}
	}
	for i, o := range found {
		items[i] = o.Object
		if metadataOnly {
			items[i] = map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o.Object["metadata"]}
		}
	}
	answer(w, list)
}

func (h *fakeHub) watch(w http.ResponseWriter, r *http.Request, key fakeKey) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	stop := false
	defer onDone(r, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		stop = true
		h.changed.Broadcast()
	})()
	flush(w)
	for {
		h.mu.Lock()
		for !stop && len(h.log) <= from {
			h.changed.Wait()
		}
		events := h.log[min(from, len(h.log)):]
		from = len(h.log)
		stopped := stop
		h.mu.Unlock()
		if stopped {
			return
		}
		for _, e := range events {
			if asked(r, key, e.resource, e.object) {
				answer(w, map[string]any{"type": e.eventType, "object": e.object.Object})
			}
		}
		flush(w)
	}
}

// onDone calls f when the client ends the connection. The function cancel prevents this.
func onDone(r *http.Request, f func()) (cancel func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-r.Context().Done():
			f()
		case <-over:
		}
	}()
	return func() { close(over) }
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

// write answers write requests.
func (h *fakeHub) write(w http.ResponseWriter, r *http.Request, key fakeKey) {
	h.mu.Lock()
	before := h.before
	h.mu.Unlock()
	if before != nil {
		before(r.Method, key.resource)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Method == http.MethodPost {
		h.create(w, key, body)
		return
	}
	o := h.objects[key]
	if r.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType) {
		h.apply(w, r, key, o, body)
		return
	}
	if o == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if r.Method == http.MethodDelete {
		h.delete(w, key, o, body)
		return
	}
	h.patch(w, key, o, body)
}

func (h *fakeHub) create(w http.ResponseWriter, key fakeKey, body []byte) {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(body); err != nil { // The body is in the Protobuf format, which clients use for built-in types.
		typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		if o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		o.SetGroupVersionKind(*gvk)
	}
	key.Name = o.GetName()
	if h.objects[key] != nil {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	h.store(key, o)
	w.WriteHeader(http.StatusCreated)
	answer(w, h.objects[key].Object)
}

func (h *fakeHub) delete(w http.ResponseWriter, key fakeKey, o *unstructured.Unstructured, body []byte) {
	options := metav1.DeleteOptions{}
	if len(body) > 0 {
		if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, &options); err != nil && json.Unmarshal(body, &options) != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
	}
	if p := options.Preconditions; p != nil &&
		((p.UID != nil && *p.UID != o.GetUID()) || (p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion())) {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	o = o.DeepCopy()
	now := metav1.NewTime(time.Now())
	o.SetDeletionTimestamp(&now)
	h.store(key, o)
	answer(w, o.Object)
}

// apply executes a server-side apply. It takes the body as the complete object.
func (h *fakeHub) apply(w http.ResponseWriter, r *http.Request, key fakeKey, was *unstructured.Unstructured, body []byte) {
	applied := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(body, &applied.Object); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if was != nil {
		applied.SetUID(was.GetUID())
	}
	if r.URL.Query().Has("dryRun") {
		answer(w, applied.Object)
		return
	}
	h.store(key, applied)
	answer(w, h.objects[key].Object)
}

// patch applies merge patches.
func (h *fakeHub) patch(w http.ResponseWriter, key fakeKey, o *unstructured.Unstructured, body []byte) {
	patch := &metav1.PartialObjectMetadata{}
	text, err := o.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(body, patch)
	}
	if err == nil {
		text, err = jsonpatch.MergePatch(text, body)
	}
	patched := &unstructured.Unstructured{}
	if err == nil {
		err = patched.UnmarshalJSON(text)
	}
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	case patch.ResourceVersion != "" && patch.ResourceVersion != o.GetResourceVersion():
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
	default:
		h.store(key, patched)
		answer(w, patched.Object)
	}
}

// kubeconfig returns a kubeconfig for the hub, with a token.
func (h *fakeHub) kubeconfig() string {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: %q, certificate-authority-data: %s}}]
contexts: [{name: hub, context: {cluster: hub, user: somebody}}]
users: [{name: somebody, user: {token: secret}}]
current-context: hub
`, h.URL, base64.StdEncoding.EncodeToString(certificate))
}

func TestFakeHubRefusesWhatIsOutdated(t *testing.T) {
	cluster := &unstructured.Unstructured{Object: map[string]any{"apiVersion": corev1alpha1.GroupVersion.String(), "kind": "FederatedCluster"}}
	cluster.SetName("eu")
	h := newFakeHub([]*unstructured.Unstructured{cluster})
	defer h.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, h.URL+"/apis/core.kubeadmiral.io/v1alpha1/federatedclusters/eu",
		strings.NewReader(`{"metadata":{"resourceVersion":"99"}}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusConflict {
		t.Errorf("a patch of a version that is no more: want %d, got %d", http.StatusConflict, response.StatusCode)
	}
}
