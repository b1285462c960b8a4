package kinds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
	"refract.dev/tree"
)

// The operations on an object, in this order.
const (
	create   = "create"
	change   = "change"
	drift    = "drift"
	recreate = "re-create"
	remove   = "delete"
	adopt    = "adopt"
)

var operations = []string{create, change, drift, recreate, remove, adopt}

// works is the result of an operation that works on every cluster that has the object.
const works = "✔"

// setting is a field and the value that it gets.
type setting struct {
	pointer tree.Pointer
	value   any
}

// kind is one row of the page.
type kind struct {
	name, comment string
	needs         []*unstructured.Unstructured // Objects that the hub must have first.
	object        *unstructured.Unstructured
	change, drift []setting
	local         []tree.Pointer // Fields whose values each cluster sets itself.
}

// read reads an archive.
func read(file string) (*kind, error) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(file[strings.LastIndex(file, "/")+1:], ".txtar")
	k := &kind{name: name, comment: strings.Join(strings.Fields(string(archive.Comment)), " ")}
	for _, f := range archive.Files {
		switch f.Name {
		case "needs.yaml":
			for text := range strings.SplitSeq(string(f.Data), "\n---\n") {
				u := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
					return nil, fmt.Errorf("%s: %w", f.Name, err)
				}
				k.needs = append(k.needs, u)
			}
		case "object.yaml":
			k.object = &unstructured.Unstructured{}
			err = yaml.Unmarshal(f.Data, &k.object.Object)
		case "change.yaml":
			k.change, err = settings(f.Data)
		case "drift.yaml":
			k.drift, err = settings(f.Data)
		case "local":
			for text := range strings.FieldsSeq(string(f.Data)) {
				p, err := tree.Parse(text)
				if err != nil {
					return nil, err
				}
				k.local = append(k.local, p)
			}
		default:
			err = errors.New("unknown name")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if k.object == nil || len(k.change) == 0 || len(k.drift) == 0 {
		return nil, errors.New("want the files object.yaml, change.yaml and drift.yaml")
	}
	return k, nil
}

// settings reads a map of JSON pointers to values.
func settings(text []byte) ([]setting, error) {
	all := map[string]any{}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	var out []setting
	for _, key := range slices.Sorted(maps.Keys(all)) {
		p, err := tree.Parse(key)
		if err != nil {
			return nil, err
		}
		out = append(out, setting{p, all[key]})
	}
	return out, nil
}

// patch returns the settings as a JSON patch.
func patch(of []setting) (client.Patch, error) {
	var out []map[string]any
	for _, s := range of {
		op := "add"
		if last := s.pointer.String(); last[strings.LastIndex(last, "/")+1:] == "0" {
			op = "replace" // "add" would insert a list element.
		}
		out = append(out, map[string]any{"op": op, "path": s.pointer.String(), "value": s.value})
	}
	text, err := json.Marshal(out)
	return client.RawPatch("application/json-patch+json", text), err
}

// trial is one object during all operations.
type trial struct {
	*fleet
	kind      *kind
	namespace string // Empty for a cluster-scoped object.
	record    client.ObjectKey
	members   []string // Members that have the object.
}

// life performs all operations with an object of a kind, one after the other, and returns the result of each. A
// returned error means that the test itself failed.
func (f *fleet) life(ctx context.Context, k *kind, before map[string]string) (map[string]string, error) {
	t, err := f.begin(ctx, k)
	if err != nil {
		return nil, err
	}
	results := map[string]string{}
	for _, op := range []struct {
		name string
		do   func(context.Context) error         // Starts the operation.
		is   func(context.Context, string) error // Returns nil if the member has the expected state.
	}{
		{create, t.create, t.settled},
		{change, t.change, t.hasHubs(k.change)},
		{drift, t.drift, t.hasHubs(k.drift)},
		{recreate, t.recreate, t.settled},
		{remove, t.remove, t.isGone},
		{adopt, t.adopt, t.isAdopted},
	} {
		if len(t.members) == 0 {
			results[op.name] = "—"
			continue
		}
		if err := op.do(ctx); err != nil {
			return results, fmt.Errorf("%s: %w", op.name, err)
		}
		results[op.name] = t.await(ctx, op.name, before[op.name], op.is)
	}
	return results, nil
}

// begin creates a namespace for an object, and the objects that it needs.
func (f *fleet) begin(ctx context.Context, k *kind) (*trial, error) {
	hub := f.clients["hub"]
	namespaced := true
	for _, u := range k.needs {
		if u.GetKind() == "CustomResourceDefinition" {
			if err := f.put(ctx, u); err != nil {
				return nil, err
			}
			if err := harness.Establish(ctx, hub, u.GetName()); err != nil {
				return nil, err
			}
		}
	}
	if err := harness.Await(ctx, func(context.Context) (err error) { // The type may be new.
		namespaced, err = hub.IsObjectNamespaced(k.object)
		return err
	}); err != nil {
		return nil, err
	}
	t := &trial{fleet: f, kind: k, members: slices.Clone(f.env.Members)}
	space := "kinds-" + k.name
	label := "kubeadmiral.io/cluster-propagation-policy-name"
	if namespaced {
		t.namespace, label = space, "kubeadmiral.io/propagation-policy-name"
		k.object.SetNamespace(space)
	}
	labels := k.object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[label] = map[bool]string{true: "everywhere", false: "kinds"}[namespaced]
	k.object.SetLabels(labels)
	if namespaced || len(k.needs) > 0 {
		for _, o := range []map[string]any{
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": space}},
			{
				"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "PropagationPolicy",
				"metadata": map[string]any{"name": "everywhere", "namespace": space}, "spec": map[string]any{"schedulingMode": "Duplicate"},
			},
		} {
			if err := harness.Apply(ctx, hub, o); err != nil {
				return nil, err
			}
		}
	}
	for _, u := range k.needs {
		if u.GetKind() == "CustomResourceDefinition" {
			continue
		}
		u.SetNamespace(space)
		if err := f.put(ctx, u); err != nil {
			return nil, err
		}
	}
	return t, harness.Await(ctx, func(context.Context) error { return t.name() })
}

// put creates an object on the hub that the object of the trial needs.
func (f *fleet) put(ctx context.Context, u *unstructured.Unstructured) error {
	return client.IgnoreAlreadyExists(f.clients["hub"].Create(ctx, u.DeepCopy()))
}

// name finds the Propagation of the object.
func (t *trial) name() error {
	gvk := t.kind.object.GroupVersionKind()
	mapping, err := t.clients["hub"].RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	of := schema.GroupResource{Group: gvk.Group, Resource: mapping.Resource.Resource}
	t.record = client.ObjectKey{Namespace: t.namespace, Name: t.kind.object.GetName() + "." + of.String()}
	return nil
}

func (t *trial) create(ctx context.Context) error {
	return t.clients["hub"].Create(ctx, t.kind.object.DeepCopy(), client.FieldOwner("kubectl-create"))
}

func (t *trial) change(ctx context.Context) error {
	p, err := patch(t.kind.change)
	if err != nil {
		return err
	}
	return t.clients["hub"].Patch(ctx, t.bare(), p, client.FieldOwner("kubectl-edit"))
}

func (t *trial) drift(ctx context.Context) error {
	p, err := patch(t.kind.drift)
	if err != nil {
		return err
	}
	at := t.members[min(1, len(t.members)-1)]
	return t.clients[at].Patch(ctx, t.bare(), p, client.FieldOwner("somebody"))
}

func (t *trial) remove(ctx context.Context) error {
	if err := t.clients["hub"].Delete(ctx, t.bare(), client.PropagationPolicy("Background")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return harness.Await(ctx, func(ctx context.Context) error {
		u, err := t.get(ctx, "hub")
		if err == nil && u != nil {
			err = fmt.Errorf("the hub still has it, with the finalizers %q", u.GetFinalizers())
		}
		return err
	})
}

func (t *trial) recreate(ctx context.Context) error {
	if err := t.remove(ctx); err != nil {
		return err
	}
	return t.create(ctx)
}

// adopting is the member that has the object before the hub places it there. It has a webhook.
const adopting = "member-2"

// adopt creates the object on a member, and then on the hub.
func (t *trial) adopt(ctx context.Context) error {
	theirs := t.kind.object.DeepCopy()
	theirs.SetLabels(map[string]string{"app": "web", "theirs": "true"})
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := harness.Await(limited, func(ctx context.Context) error { // The deletion of the former copy may not be complete.
		err := t.clients[adopting].Create(ctx, theirs.DeepCopy(), client.FieldOwner("somebody"))
		if u, _ := t.get(ctx, adopting); u != nil && u.GetLabels()["kubeadmiral.io/managed"] == "" && u.GetDeletionTimestamp() == nil {
			return client.IgnoreAlreadyExists(err) // The former copy stayed on the member as an object of its own.
		}
		return err
	})
	if err != nil {
		return err
	}
	ours := t.kind.object.DeepCopy()
	annotations := ours.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["kubeadmiral.io/conflict-resolution"] = "adopt"
	annotations["kubeadmiral.io/clusters-to-adopt"] = `{"clusters":["` + adopting + `"]}`
	ours.SetAnnotations(annotations)
	return t.clients["hub"].Create(ctx, ours, client.FieldOwner("kubectl-create"))
}

// bare returns the object without its content.
func (t *trial) bare() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(t.kind.object.GroupVersionKind())
	u.SetNamespace(t.namespace)
	u.SetName(t.kind.object.GetName())
	return u
}

// get returns the object of a cluster, or nil.
func (t *trial) get(ctx context.Context, cluster string) (*unstructured.Unstructured, error) {
	u := t.bare()
	err := t.clients[cluster].Get(ctx, client.ObjectKeyFromObject(u), u)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // As the comment says.
	}
	return u, err
}

// report returns the row of a member in the Propagation, if the Propagation is about the current object of the hub.
func (t *trial) report(ctx context.Context, member string) (*refractv1alpha1.ClusterStatus, error) {
	source, err := t.get(ctx, "hub")
	if err != nil || source == nil {
		return nil, cmp.Or(err, errors.New("the hub has lost it"))
	}
	p := &refractv1alpha1.Propagation{}
	if t.namespace == "" {
		whole := &refractv1alpha1.ClusterPropagation{}
		err = t.clients["hub"].Get(ctx, t.record, whole)
		p.Spec, p.Status = whole.Spec, whole.Status
	} else {
		err = t.clients["hub"].Get(ctx, t.record, p)
	}
	if err != nil {
		return nil, errors.New("nothing is reported")
	}
	if p.Spec.Source.UID != source.GetUID() || p.Status.ObservedGeneration != source.GetGeneration() {
		return nil, errors.New("nothing is reported of it yet")
	}
	for i := range p.Status.Clusters {
		if r := &p.Status.Clusters[i]; r.Name == member {
			return r, nil
		}
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, refractv1alpha1.ConditionSynced); c != nil && c.Status == metav1.ConditionFalse {
		return nil, fmt.Errorf("%s: %s", c.Reason, c.Message)
	}
	return nil, errors.New("nothing is reported of this member")
}

// settled returns nil if a member has the intended content, and it is ready.
func (t *trial) settled(ctx context.Context, member string) error {
	r, err := t.report(ctx, member)
	switch {
	case err != nil:
		return err
	case r.State != refractv1alpha1.StateSynced:
		return fmt.Errorf("%s: %s", cmp.Or(r.Reason, string(r.State)), r.Message)
	case r.Readiness != refractv1alpha1.ReadinessReady:
		return fmt.Errorf("not ready: %s", r.ReadinessMessage)
	}
	copied, err := t.get(ctx, member)
	if err != nil || copied == nil {
		return cmp.Or(err, errors.New("it is not there"))
	}
	return t.hasOwn(ctx, copied)
}

// hasOwn returns an error if the copy has the hub's value in a field that each cluster sets for itself.
func (t *trial) hasOwn(ctx context.Context, copied *unstructured.Unstructured) error {
	source, err := t.get(ctx, "hub")
	if err != nil || source == nil {
		return cmp.Or(err, errors.New("the hub has lost it"))
	}
	for _, p := range t.kind.local {
		here, err := tree.Lookup(copied.Object, p)
		if err != nil {
			return fmt.Errorf("%s is not set", p)
		}
		if there, err := tree.Lookup(source.Object, p); err == nil && reflect.DeepEqual(here, there) {
			return fmt.Errorf("%s is that of the hub", p)
		}
	}
	return nil
}

// hasHubs returns a function that returns an error unless the copy on a member has the hub's values in these fields.
func (t *trial) hasHubs(fields []setting) func(context.Context, string) error {
	return func(ctx context.Context, member string) error {
		source, err := t.get(ctx, "hub")
		if err != nil || source == nil {
			return cmp.Or(err, errors.New("the hub has lost it"))
		}
		copied, err := t.get(ctx, member)
		if err != nil || copied == nil {
			return cmp.Or(err, errors.New("it is not there"))
		}
		for _, f := range fields {
			want, absent := tree.Lookup(source.Object, f.pointer)
			got, err := tree.Lookup(copied.Object, f.pointer)
			if absent != nil && err != nil {
				continue
			}
			if !reflect.DeepEqual(want, got) {
				why := fmt.Errorf("%s is not the hub's", f.pointer)
				if r, err := t.report(ctx, member); err == nil && r.State != refractv1alpha1.StateSynced {
					why = fmt.Errorf("%s: %s", cmp.Or(r.Reason, string(r.State)), r.Message)
				}
				return why
			}
		}
		return nil
	}
}

// isGone returns nil if a member has no copy.
func (t *trial) isGone(ctx context.Context, member string) error {
	u, err := t.get(ctx, member)
	if err == nil && u != nil {
		err = errors.New("it is still there")
		if u.GetLabels()["kubeadmiral.io/managed"] != "true" {
			err = errors.New("it stays, and is no copy any more")
		}
	}
	return err
}

// isAdopted returns an error unless the member has the intended content and, if it is the adopting member, has adopted
// its object. Other members must not have adopted the object.
func (t *trial) isAdopted(ctx context.Context, member string) error {
	if err := t.settled(ctx, member); err != nil {
		return err
	}
	r, err := t.report(ctx, member)
	if err == nil && r.Adopted != (member == adopting) {
		err = errors.New("it has what belongs there, but no row says that it was adopted")
	}
	return err
}

// await waits until all members of the trial have the expected state, and returns the cell of the page. If the page says
// that the operation fails, it waits for [settling] at least, and then until the result is that of the page. Members on
// which the object could not be created are left out of later operations.
func (t *trial) await(ctx context.Context, op, before string, is func(context.Context, string) error) string {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience())
	defer cancel()
	failed := map[string]string{}
	_ = harness.Await(ctx, func(ctx context.Context) error { // After the time limit, the last result is the result.
		now := map[string]string{}
		for _, m := range t.members {
			if err := is(ctx, m); err != nil {
				now[m] = plain(err.Error())
			}
		}
		if ctx.Err() == nil || len(failed) == 0 || len(now) == 0 { // A later failure may only mean that the context has ended.
			failed = now
		}
		if len(now) == 0 || time.Since(began) >= settling && t.cell(now) == before {
			return nil
		}
		return errors.New("not yet")
	})
	if op == create {
		t.members = slices.DeleteFunc(t.members, func(m string) bool { return failed[m] != "" })
	}
	return t.cell(failed)
}

// cell returns the cell of the page for the errors of members.
func (t *trial) cell(failed map[string]string) string {
	if len(failed) == 0 {
		return works
	}
	by := map[string][]string{}
	for _, m := range slices.Sorted(maps.Keys(failed)) {
		by[failed[m]] = append(by[failed[m]], m)
	}
	var trouble []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		where := strings.Join(by[why], ", ")
		if len(by[why]) == len(t.env.Members) {
			where = "every member"
		}
		trouble = append(trouble, where+": "+why)
	}
	return strings.Join(trouble, "; ")
}

// varying matches parts of messages that differ between runs.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`\bfd00:[0-9a-f:]+`), "ADDRESS"},
	{regexp.MustCompile(`\b3\d{4}\b`), "PORT"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s)\b`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`\s+`), " "},
	{regexp.MustCompile(`\|`), "/"},
}

// plain returns the first sentence of a reason, without the parts that differ between runs.
func plain(text string) string {
	for _, v := range varying {
		text = v.what.ReplaceAllString(text, v.by)
	}
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSpace(first)
}
