package adversary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
)

const (
	liar, honest = "member-1", "member-2"
	shop         = "shop"
)

// rubbish has invalid statuses, by the URL path of the list that contains them. A program that does not check the types
// of these values panics.
var rubbish = map[string]struct {
	kind   string
	status any
}{
	"/api/v1/pods":              {"Pod", map[string]any{"phase": "Running", "containerStatuses": []any{"one", "two"}}},
	"/apis/apps/v1/deployments": {"Deployment", "as it should be"},
}

// TestForeignAnswers: a member sends invalid statuses, and then responses that do not end. The cluster's conditions and
// the Propagations show the problem, and other members and tenants are not affected.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env := harness.New(t, harness.Topology{Members: 2, CRDs: true, Nodes: true})
	clients := map[string]client.WithWatch{}
	for _, cluster := range append([]string{"hub"}, env.Members...) {
		c, err := env.Client(cluster)
		if err != nil {
			t.Fatal(err)
		}
		clients[cluster] = c
	}
	hub := clients["hub"]
	proxy, err := env.Proxy(liar)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	to, err := env.Access(honest)
	if err != nil {
		t.Fatal(err)
	}
	for name, access := range map[string]harness.Access{liar: proxy.Access, honest: to} {
		if err := env.Join(ctx, name, access); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Behave(lie(clients[liar]))
	controllers, err := env.Replica("controllers")
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the controllers are ready", controllers.Ready)

	if err := hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]any{corev1alpha1.PropagationPolicyLabel: "everywhere"}
	meta := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": shop, "labels": labels}
	}
	containers := map[string]any{"containers": []any{map[string]any{"name": "web", "image": "example.com/web:1"}}}
	for _, o := range []map[string]any{
		{
			"apiVersion": corev1alpha1.GroupVersion.String(), "kind": corev1alpha1.KindPropagationPolicy,
			"metadata": map[string]any{"name": "everywhere", "namespace": shop}, "spec": map[string]any{"schedulingMode": "Duplicate"},
		},
		{"apiVersion": "v1", "kind": "Pod", "metadata": meta("pod"), "spec": containers},
		{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web"), "spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": containers},
		}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("settings"), "data": map[string]any{"size": "1"}},
	} {
		if err := harness.Apply(ctx, hub, o); err != nil {
			t.Fatal(err)
		}
	}

	for record, want := range map[string]string{
		"pod.pods":             "status.containerStatuses[0]: want an object, got a string",
		"web.deployments.apps": "its status on the cluster cannot be read",
	} {
		harness.Eventually(t, record+" reports the failure on the member, and its reason", func(ctx context.Context) error {
			rows, err := rowsOf(ctx, hub, record)
			if err != nil {
				return err
			}
			r := rows[liar]
			if r.Readiness != refractv1alpha1.ReadinessFailed || !strings.Contains(r.ReadinessMessage, want) {
				return fmt.Errorf("the row of the member is %+v", r)
			}
			if other := rows[honest]; other.State != refractv1alpha1.StateSynced || strings.Contains(other.ReadinessMessage, want) {
				return fmt.Errorf("the row of the other member is %+v", other)
			}
			return nil
		})
	}
	arrives(t, clients, "1", env.Members...)

	// From now on, the member's responses to requests for ConfigMaps do not end.
	proxy.Behave(endless)
	proxy.Cut()
	harness.Eventually(t, "the FederatedCluster reports answers that are too large", func(ctx context.Context) error {
		return readable(ctx, hub, metav1.ConditionFalse)
	})
	resize(t, hub, "2")
	arrives(t, clients, "2", honest)
	if controllers.Ended() {
		t.Fatal("The controllers have ended.")
	}

	proxy.Behave(nil)
	proxy.Cut()
	resize(t, hub, "3")
	arrives(t, clients, "3", env.Members...)
	if controllers.Ended() {
		t.Fatal("The controllers have ended.")
	}
}

// lie replaces the statuses of the objects in rubbish, and passes all other requests on.
func lie(member client.WithWatch) harness.Fault {
	return func(w http.ResponseWriter, r *http.Request, healed <-chan struct{}) bool {
		of, is := rubbish[r.URL.Path]
		if !is || r.Method != http.MethodGet {
			return false
		}
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), "/api/"))
		list.SetKind(of.kind + "List")
		copies := client.MatchingLabels{corev1alpha1.ManagedLabel: "true"}
		switch q := r.URL.Query(); {
		case q.Get("sendInitialEvents") != "": // API servers without streaming lists send this response. The client then sends a normal list request.
			write(w, http.StatusUnprocessableEntity, metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			})
			return true
		case q.Get("watch") != "":
			events, err := member.Watch(r.Context(), list, copies)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			defer events.Stop()
			lieOn(w, events.ResultChan(), of.status, healed)
			return true
		}
		if err := member.List(r.Context(), list, copies); err != nil {
			panic(http.ErrAbortHandler)
		}
		for i := range list.Items {
			list.Items[i].Object["status"] = of.status
		}
		text, err := list.MarshalJSON()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // An error means that the client has disconnected.
		return true
	}
}

// lieOn forwards the events of a watch with this status in every object.
func lieOn(w http.ResponseWriter, events <-chan watch.Event, status any, healed <-chan struct{}) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	stream := http.NewResponseController(w)
	for stream.Flush() == nil {
		select {
		case <-healed:
			return
		case e, more := <-events:
			u, is := e.Object.(*unstructured.Unstructured)
			if !more || !is {
				return // The client watches anew.
			}
			u.Object["status"] = status
			if err := json.NewEncoder(w).Encode(map[string]any{"type": e.Type, "object": u.Object}); err != nil {
				return // The client has disconnected.
			}
		}
	}
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return // The client has disconnected.
	}
}

// endless is a fault: responses to requests for ConfigMaps do not end.
func endless(w http.ResponseWriter, r *http.Request, healed <-chan struct{}) bool {
	if !strings.Contains(r.URL.Path, "/configmaps") {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	more := strings.Repeat("x", 64<<10)
	_, err := io.WriteString(w, `{"kind":"`)
	for err == nil {
		select {
		case <-healed:
			panic(http.ErrAbortHandler)
		default:
			_, err = io.WriteString(w, more)
		}
	}
	return true
}

// rowsOf returns the row of each cluster in a Propagation.
func rowsOf(ctx context.Context, hub client.Client, name string) (map[string]refractv1alpha1.ClusterStatus, error) {
	p := &refractv1alpha1.Propagation{}
	if err := hub.Get(ctx, types.NamespacedName{Namespace: shop, Name: name}, p); err != nil {
		return nil, err
	}
	p.Status.Expand()
	rows := map[string]refractv1alpha1.ClusterStatus{}
	for i := range p.Status.Clusters {
		rows[p.Status.Clusters[i].Name] = p.Status.Clusters[i]
	}
	return rows, nil
}

// readable returns nil if the member's condition Readable has the wanted status.
func readable(ctx context.Context, hub client.Client, want metav1.ConditionStatus) error {
	fc := &corev1alpha1.FederatedCluster{}
	if err := hub.Get(ctx, types.NamespacedName{Name: liar}, fc); err != nil {
		return err
	}
	for _, c := range fc.Status.Conditions {
		if c.Type != corev1alpha1.ClusterReadable {
			continue
		}
		if c.Status != want || c.Reason != "AnswerTooLarge" || !strings.Contains(c.Message, "cluster "+liar) {
			return fmt.Errorf("condition Readable is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	}
	return errors.New("there is no such condition")
}

// resize changes the ConfigMap on the hub.
func resize(t *testing.T, hub client.Client, size string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "settings"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"size":"`+size+`"}}`))
	if err := hub.Patch(t.Context(), o, patch); err != nil {
		t.Fatal(err)
	}
}

// arrives waits until the ConfigMap has this size on all of these members.
func arrives(t *testing.T, clients map[string]client.WithWatch, size string, members ...string) {
	t.Helper()
	for _, m := range members {
		harness.Eventually(t, "size "+size+" arrives on "+m, func(ctx context.Context) error {
			o := &corev1.ConfigMap{}
			if err := clients[m].Get(ctx, types.NamespacedName{Namespace: shop, Name: "settings"}, o); err != nil {
				return err
			}
			if o.Data["size"] != size {
				return fmt.Errorf("the size is %q", o.Data["size"])
			}
			return nil
		})
	}
}
