package restart

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/rescue"
)

// The delay until a missing object or a rejected pod is checked again. It begins with firstLook and doubles up to
// lastLook.
const (
	firstLook = 2 * time.Second
	lastLook  = 15 * time.Second
)

// atOnce is the maximum number of concurrent requests of one kind.
const atOnce = 8

// preflight makes two checks with the API server before pods are replaced: whether the objects that policies name
// exist, and whether new pods would be admitted.
type preflight struct {
	client client.Client
	log    logr.Logger
	now    func() time.Time
}

// resolve reads objects that policies name.
func (f *preflight) resolve(ctx context.Context, ns *namespaceState, wanted []object) {
	var mu sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, o := range wanted {
		before := ns.references[o]
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			found := f.lookSafely(ctx, ns.name, o)
			found.at = f.now()
			if found.found == before.found && found.err == before.err && maps.Equal(found.keys, before.keys) {
				found.same = before.same + 1
			}
			mu.Lock()
			defer mu.Unlock()
			ns.references[o] = found
		})
	}
	running.Wait()
}

// lookSafely calls look. A panic becomes an error in the result.
func (f *preflight) lookSafely(ctx context.Context, namespace string, o object) resolution {
	found, err := func() (found resolution, err error) {
		defer rescue.To(&err, f.log, "looking for what an injection policy names", "namespace", namespace, "object", o.String())
		return f.look(ctx, namespace, o), nil
	}()
	if err != nil {
		return resolution{err: err.Error()}
	}
	return found
}

// look reads an object that a policy names, and keeps only its keys.
func (f *preflight) look(ctx context.Context, namespace string, o object) resolution {
	key := types.NamespacedName{Namespace: namespace, Name: o.name}
	r := resolution{keys: map[string]bool{}}
	var err error
	switch o.kind {
	case "Secret":
		secret := &corev1.Secret{}
		err = f.client.Get(ctx, key, secret)
		for name := range secret.Data {
			r.keys[name] = true
		}
	case "ConfigMap":
		data := &corev1.ConfigMap{}
		err = f.client.Get(ctx, key, data)
		for name := range data.Data {
			r.keys[name] = true
		}
		for name := range data.BinaryData {
			r.keys[name] = true
		}
	default:
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: o.kind})
		err = f.client.Get(ctx, key, meta)
	}
	switch {
	case err == nil:
		r.found = true
	case !apierrors.IsNotFound(err):
		r.err = err.Error()
	}
	return r
}

// probe checks by a dry run whether a new pod is admitted and gets the expected items.
func (f *preflight) probe(ctx context.Context, ns *namespaceState, q query) {
	before := ns.probes[q.group.ref.uid]
	p := probe{hash: q.hash}
	p.reason, p.message = f.trySafely(ctx, ns.name, q)
	p.ok, p.at = p.reason == "", f.now()
	if !p.ok {
		p.tries = 1
		if before.hash == q.hash {
			p.tries += before.tries
		}
		p.retry = p.at.Add(backoff(firstLook, lastLook, p.tries-1))
	}
	ns.probes[q.group.ref.uid] = p
}

// trySafely calls try. A panic affects only this workload.
func (f *preflight) trySafely(ctx context.Context, namespace string, q query) (reason, message string) {
	var err error
	func() {
		defer rescue.To(&err, f.log, "trying out a pod", "namespace", namespace, "workload", q.group.ref.String())
		reason, message = f.try(ctx, namespace, q)
	}()
	if err != nil {
		return reasonInternal, err.Error()
	}
	return reason, message
}

// try returns the reason why a new pod of the group is not admitted with the expected items; empty if it is.
func (f *preflight) try(ctx context.Context, namespace string, q query) (reason, message string) {
	trial, err := f.trial(ctx, namespace, q)
	if err != nil {
		return reasonChanging, err.Error()
	}
	if err := f.client.Create(ctx, trial, client.DryRunAll); err != nil {
		return reasonPodRefused, "a trial pod cannot be created: " + unnamed(err.Error(), trial.GetGenerateName())
	}
	text := trial.GetAnnotations()[refractv1beta1.InjectionAnnotation]
	if text == "" {
		return reasonBounced, "a trial pod got no injection: the webhook does not answer, or does not know the policy yet"
	}
	record, err := inject.ReadRecord(text)
	if err != nil {
		return reasonBounced, err.Error()
	}
	if record.Hash != q.hash {
		return reasonBounced, "a trial pod got other items than expected" + skippedIn(record)
	}
	return "", ""
}

// generated matches the suffix that an API server adds to a generateName. mostBase is the maximum length of the prefix
// before it; the API server cuts off the rest.
const (
	generated = "[bcdfghjklmnpqrstvwxz2456789]{5}"
	mostBase  = 63 - 5
)

// unnamed removes generated suffixes from a message: those of names that begin with base. Each try has another suffix.
// So without unnamed, the status would change after each try.
func unnamed(message, base string) string {
	base = base[:min(len(base), mostBase)]
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(base)+generated+`\b`).ReplaceAllLiteralString(message, base)
}

// skippedIn describes the skipped policies of a record.
func skippedIn(record *inject.Record) string {
	var skipped []string
	for _, s := range record.Skipped {
		skipped = append(skipped, fmt.Sprintf("; policy %s was left out (%s) %s", s.Policy, s.Reason, s.Message))
	}
	return strings.Join(skipped, "")
}

// trial returns a pod that the group's controller would create: from the current template or, for an owner of an
// unknown kind, as a copy of the pod that will be evicted.
func (f *preflight) trial(ctx context.Context, namespace string, q query) (*unstructured.Unstructured, error) {
	from := &unstructured.Unstructured{}
	from.SetAPIVersion(q.group.ref.apiVersion)
	from.SetKind(q.group.ref.kind)
	name := q.group.ref.name
	if q.group.workload == nil {
		from.SetAPIVersion("v1")
		from.SetKind(kindPod)
		name = q.victim.name
	}
	if err := f.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, from); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", from.GetKind(), name, err)
	}
	var trial *unstructured.Unstructured
	if w := q.group.workload; w != nil {
		if from.GetUID() != w.uid || from.GetGeneration() != w.generation {
			return nil, fmt.Errorf("%s has just been changed", q.group.ref)
		}
		trial = (&unstructured.Unstructured{Object: podOf(from)}).DeepCopy()
	} else {
		like, err := likeNew(from)
		if err != nil {
			return nil, err
		}
		trial = like
	}
	trial.SetNamespace(namespace)
	trial.SetGenerateName(name + "-")
	annotations := trial.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if q.group.workload != nil {
		annotations[refractv1beta1.HashAnnotation] = q.hash
	}
	delete(annotations, refractv1beta1.InjectionAnnotation)
	trial.SetAnnotations(annotations)
	return trial, nil
}

// likeNew returns a copy of a pod as it was before its creation, without the additions of the API server, the scheduler
// and policies.
func likeNew(pod *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	from, err := withoutInjected(pod)
	if err != nil {
		return nil, fmt.Errorf("pod %s without what was injected: %w", pod.GetName(), err)
	}
	spec, _, _ := unstructured.NestedMap(from.Object, "spec")
	for _, key := range []string{"nodeName", "ephemeralContainers", "priority", "preemptionPolicy"} {
		delete(spec, key)
	}
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kindPod, "spec": spec}}
	out.SetLabels(from.GetLabels())
	out.SetAnnotations(from.GetAnnotations())
	return out, nil
}

// withoutInjected returns a copy of a pod without the recorded additions of policies.
func withoutInjected(pod *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	text, err := pod.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	removals, err := inject.Revert(text)
	if err != nil {
		return nil, err
	}
	if removals == nil {
		return pod.DeepCopy(), nil
	}
	patch, err := jsonpatch.DecodePatch(removals)
	if err != nil {
		return nil, fmt.Errorf("reading what to take away: %w", err)
	}
	if text, err = patch.Apply(text); err != nil {
		return nil, fmt.Errorf("taking it away: %w", err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("decoding it: %w", err)
	}
	return out, nil
}
