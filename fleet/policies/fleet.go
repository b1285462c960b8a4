package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/internal/rescue"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/tree"
)

// answer is the result of the review of a write, with the fleet taken into account.
type answer struct {
	// unchecked is the reason why the references that objects get from the policy are unknown; nil if they are known.
	// The write is then rejected, because no later step checks the references.
	unchecked error
	// references are the references that objects get from the policy.
	references []referent
	// causes are the reasons to reject the write.
	causes []metav1.StatusCause
	// warnings have the most important first.
	warnings []string
}

// errTooMuch is the error of an evaluation that is too large.
var errTooMuch = fmt.Errorf("the copies have more than %d values together, too many to evaluate here: use refract diff", mostValues)

// errMuchAdvice is the reason why the author gets only the result of the checks.
var errMuchAdvice = errors.New("the policies of the namespace have taken too much time recently: try again in a few seconds, or use refract diff")

// ask evaluates the fleet within v.Patience. The answer has the results that are ready by then. The required check,
// which concerns references, comes before the advice.
func (v *validator) ask(ctx context.Context, w *write, alone *manifest.Set) *answer {
	if v.Fleet == nil {
		return &answer{}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, v.Patience, bounded.ErrTooLong)
	defer cancel()
	done, err := v.places.Take(ctx, w.ref.Namespace, w.weight)
	if err != nil {
		return v.unanswered(w, nil, err)
	}
	type result struct {
		answer *answer
		err    error
	}
	checked, advised := make(chan *answer, 1), make(chan result, 1)
	go func() { // The goroutine ends soon after ctx, and then releases its turn.
		defer done()
		a, err := v.answer(ctx, w, alone, checked)
		advised <- result{a, err}
	}()
	select {
	case <-ctx.Done():
	case r := <-advised:
		if r.err == nil {
			return r.answer
		}
		err = r.err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	select {
	case known := <-checked:
		return v.unanswered(w, known, err)
	default:
		return v.unanswered(w, nil, err)
	}
}

// unanswered returns the answer without advice. known has the result of the required check; it is nil if that result is
// missing, too.
func (v *validator) unanswered(w *write, known *answer, why error) *answer {
	v.Log.Info("Checked a policy without the fleet", "policy", w.ref.String(), "reason", why.Error())
	a := &answer{warnings: []string{fmt.Sprintf("the effect on the fleet is not known: %v", why)}}
	switch {
	case known != nil:
		a.references = known.references
	case w.overrides():
		a.unchecked = why
	}
	return a
}

// answer makes the required check first, because no later step repeats it once the policy is stored. Then it makes the
// advice for the author. Errors of lint belong to the advice, because the controllers find them as well, and then write
// nothing.
func (v *validator) answer(ctx context.Context, w *write, alone *manifest.Set, checked chan<- *answer) (_ *answer, err error) {
	defer rescue.To(&err, v.Log, "evaluating a policy on the fleet", "policy", w.ref.String())
	objects, err := v.Fleet.Objects(ctx)
	if err != nil {
		return nil, fmt.Errorf("the hub's objects are not known: %w", err)
	}
	if cause := secondName(w, objects); cause != nil && !v.Lenient {
		return &answer{causes: []metav1.StatusCause{*cause}}, nil
	}
	base, problems, err := v.known.parse(ctx, objects, v.Namespaced)
	if err != nil {
		return nil, err
	}
	before, after, problems := w.sides(base, problems, alone, v.Namespaced)
	known := &answer{}
	if !w.deleted() {
		if known.references, err = broughtIn(ctx, w, after); err != nil {
			return nil, err
		}
	}
	checked <- known
	if v.advice.Over(w.ref.Namespace, time.Now()) {
		return nil, errMuchAdvice
	}
	began := time.Now()
	advise := v.advise
	if w.deleted() {
		advise = v.adviseDeletion
	}
	a, err := advise(ctx, w, before, after, problems)
	now := time.Now()
	v.advice.Add(w.ref.Namespace, now.Sub(began), now)
	if err != nil {
		return nil, err
	}
	a.references = known.references
	return a, nil
}

// secondName returns the cause to reject a cluster with the address of another connected cluster, which can only be the
// same cluster. If two different addresses lead to one cluster, the connection reveals it later.
func secondName(w *write, objects []*unstructured.Unstructured) *metav1.StatusCause {
	endpoint := func(u *unstructured.Unstructured) string {
		text, _, _ := unstructured.NestedString(u.Object, "spec", "apiEndpoint") // A value of another type is no address.
		return strings.TrimSuffix(text, "/")
	}
	if !w.cluster() || endpoint(w.now) == "" || w.was != nil && endpoint(w.was) == endpoint(w.now) {
		return nil
	}
	for _, o := range objects {
		served, _, _ := unstructured.NestedString(o.Object, "status", "clusterUID")
		switch {
		case o.GetKind() != corev1alpha1.KindFederatedCluster, o.GetName() == w.ref.Name, served == "", endpoint(o) != endpoint(w.now),
			w.now.GetAnnotations()[refractv1alpha1.ReplacesAnnotation] == o.GetName():
		default:
			is := cause("spec.apiEndpoint", fmt.Sprintf(
				"cluster %s has this address, and a cluster has one name; to rename it: refract join %s --replaces %s", o.GetName(), w.ref.Name, o.GetName(),
			))
			return &is
		}
	}
	return nil
}

// advise describes the effects of the write on the fleet, and the problems that it causes.
func (v *validator) advise(ctx context.Context, w *write, before, after *manifest.Set, problems []*manifest.Problem) (*answer, error) {
	a := &answer{}
	if w.was != nil && !w.cluster() && len(after.Objects) == 0 {
		a.warnings = append(a.warnings, "changes nothing: no object names this policy")
	}
	radius, rollouts, waits, err := blastRadius(w, before, after, within(ctx))
	if err != nil {
		return nil, err
	}
	seen := v.visibility(ctx, w, before, after)
	if radius != "" {
		a.warnings = append(a.warnings, radius)
		if says := w.approval(waits); says != "" {
			a.warnings = append(a.warnings, says)
		}
		a.warnings = append(a.warnings, sayWaves(rollouts, seen)...)
	}
	was, err := lint.Each(before, problems, within(ctx))
	if err != nil {
		return nil, err
	}
	is, err := lint.Each(after, problems, within(ctx))
	if err != nil {
		return nil, err
	}
	a.judge(w, was, is, v.Lenient, seen)
	return a, nil
}

// mostValues limits the maps, lists and scalars of all copies in one evaluation, to some 300 MB. It also bounds the
// memory that the author of one policy can use, because only two evaluations run at a time. The check of references
// ([broughtIn]) holds the copies of only one object at a time.
const mostValues = 4_000_000

// within returns a function that ends an evaluation when ctx ends or the evaluation is too large.
func within(ctx context.Context) func(*render.Outcome) error {
	values := 0
	return func(o *render.Outcome) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if o == nil {
			return nil
		}
		for i := range o.Variants {
			if v := o.Variants[i].Object; v != nil {
				values += valuesIn(v.Object)
			}
			values += len(o.Variants[i].Changes)
		}
		if values > mostValues {
			return errTooMuch
		}
		return nil
	}
}

func valuesIn(value any) int {
	n := 1
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			n += valuesIn(member)
		}
	case []any:
		for _, element := range v {
			n += valuesIn(element)
		}
	}
	return n
}

// known is the result of the last parse.
type known struct {
	turn     chan struct{} // Held by the goroutine that parses.
	objects  []*unstructured.Unstructured
	set      *manifest.Set
	problems []*manifest.Problem
	previous manifest.Previous
}

func newKnown() *known { return &known{turn: make(chan struct{}, 1)} }

// parse returns the objects as a set, and their problems. Both are shared, and must not be modified. It parses only
// objects that are new since the last call, even if the last call ran out of time. When ctx ends, it soon returns.
func (k *known) parse(
	ctx context.Context, objects []*unstructured.Unstructured, namespaced func(schema.GroupKind) (namespaced, known bool),
) (*manifest.Set, []*manifest.Problem, error) {
	objects = inOrder(objects)
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	defer func() { <-k.turn }()
	if k.set == nil || !slices.Equal(objects, k.objects) {
		set, problems, err := k.previous.FromObjects(ctx, place, objects, namespaced)
		if err != nil {
			return nil, nil, err
		}
		k.set, k.problems, k.objects = set, problems, objects
	}
	return k.set, k.problems, nil
}

// inOrder returns the objects in an order that does not depend on their order in the argument.
func inOrder(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	type named struct {
		key    [4]string
		object *unstructured.Unstructured
	}
	all := make([]named, len(objects))
	for i, o := range objects {
		all[i] = named{[...]string{o.GetNamespace(), o.GetKind(), o.GetName(), o.GetAPIVersion()}, o}
	}
	slices.SortFunc(all, func(a, b named) int { return slices.Compare(a.key[:], b.key[:]) })
	out := make([]*unstructured.Unstructured, len(all))
	for i := range all {
		out[i] = all[i].object
	}
	return out
}

// sides returns the relevant objects before and after the write, and the problems of other objects.
func (w *write) sides(base *manifest.Set, problems []*manifest.Problem, alone *manifest.Set,
	namespaced func(schema.GroupKind) (namespaced, known bool),
) (before, after *manifest.Set, others []*manifest.Problem) {
	others = slices.DeleteFunc(slices.Clone(problems), func(p *manifest.Problem) bool {
		return p.Kind == w.ref.Kind && p.Namespace == w.ref.Namespace && p.Name == w.ref.Name
	})
	if !w.cluster() {
		base = concerned(base, w)
	}
	if w.was != nil { // The request is more current than the cache.
		was, _ := manifest.FromObjects(place, []*unstructured.Unstructured{w.was}, namespaced)
		before = base.Overlay(was)
		if w.deleted() {
			return before, without(before, w), others
		}
		return before, before.Overlay(alone), others
	}
	before = without(base, w)
	if w.cluster() {
		alone = expected(w, namespaced)
	}
	return before, before.Overlay(alone), others
}

// expected returns a new cluster in the state after its connection. Without a UID, it counts as ready before it is
// connected; the API server has already given it one.
func expected(w *write, namespaced func(schema.GroupKind) (namespaced, known bool)) *manifest.Set {
	ready := w.now.DeepCopy()
	ready.SetUID("")
	set, _ := manifest.FromObjects(place, []*unstructured.Unstructured{ready}, namespaced)
	return set
}

// concerned returns the part of the set on which the policy has an effect: the objects that name the policy, all
// autoscalers, and the policies that these objects name.
func concerned(set *manifest.Set, w *write) *manifest.Set {
	out := *set
	out.Objects, out.Manifests = nil, nil
	named := map[tree.Policy]bool{w.ref: true}
	for i := range set.Objects {
		o := &set.Objects[i]
		refs := namedBy(o)
		if !slices.Contains(refs, w.ref) && !placement.IsAutoscaler(o.Content.GroupVersionKind().GroupKind()) {
			continue
		}
		out.Objects = append(out.Objects, *o)
		for _, ref := range refs {
			named[ref] = true
		}
	}
	out.OverridePolicies = only(set.OverridePolicies, func(p *override.Policy) bool { return named[unversioned(p.Ref)] })
	out.ClusterOverridePolicies = only(set.ClusterOverridePolicies, func(p *override.Policy) bool { return named[unversioned(p.Ref)] })
	out.PropagationPolicies = only(set.PropagationPolicies, func(p *placement.Policy) bool { return named[unversioned(p.Ref)] })
	out.ClusterPropagationPolicies = only(set.ClusterPropagationPolicies, func(p *placement.Policy) bool { return named[unversioned(p.Ref)] })
	obeyed := set.Rollouts()
	rules := map[tree.Policy]bool{}
	for i := range out.Objects {
		if names, _, err := obeyed.Named(&out.Objects[i]); err == nil {
			for _, ref := range names.All() {
				rules[ref] = true
			}
		}
	}
	out.RolloutPolicies = slices.DeleteFunc(slices.Clone(set.RolloutPolicies), func(p manifest.Policy[refractv1alpha1.RolloutPolicy, rollout.Policy]) bool {
		return !rules[tree.Policy{Kind: refractv1alpha1.KindRolloutPolicy, Namespace: p.Policy.Namespace, Name: p.Policy.Name}]
	})
	out.ClusterRolloutPolicies = slices.DeleteFunc(slices.Clone(set.ClusterRolloutPolicies),
		func(p manifest.Policy[refractv1alpha1.ClusterRolloutPolicy, rollout.Policy]) bool {
			return !rules[tree.Policy{Kind: refractv1alpha1.KindClusterRolloutPolicy, Name: p.Policy.Name}]
		})
	return &out
}

func unversioned(ref tree.Policy) tree.Policy {
	ref.Generation = 0
	return ref
}

func only[T, C any](list []manifest.Policy[T, C], keep func(*C) bool) []manifest.Policy[T, C] {
	return slices.DeleteFunc(slices.Clone(list), func(p manifest.Policy[T, C]) bool { return !keep(p.Compiled) })
}

// namedBy returns the policies that the object names, without generation.
func namedBy(o *manifest.Object) []tree.Policy {
	labels, namespace := o.Content.GetLabels(), o.Content.GetNamespace()
	refs, _, _ := override.Named(labels, namespace) // Lint reports wrong labels.
	if ref, ok, _, err := placement.Named(labels, namespace); ok && err == nil {
		refs = append(refs, ref)
	}
	return refs
}

// without returns the set without the written object, which the cache may still have from before its deletion.
func without(set *manifest.Set, w *write) *manifest.Set {
	named := func(meta metav1.Object) bool {
		return meta.GetNamespace() == w.ref.Namespace && meta.GetName() == w.ref.Name
	}
	out := *set
	out.Manifests = nil
	switch w.ref.Kind {
	case corev1alpha1.KindOverridePolicy:
		out.OverridePolicies = only(set.OverridePolicies, func(p *override.Policy) bool { return unversioned(p.Ref) != w.ref })
	case corev1alpha1.KindClusterOverridePolicy:
		out.ClusterOverridePolicies = only(set.ClusterOverridePolicies, func(p *override.Policy) bool { return unversioned(p.Ref) != w.ref })
	case corev1alpha1.KindPropagationPolicy:
		out.PropagationPolicies = only(set.PropagationPolicies, func(p *placement.Policy) bool { return unversioned(p.Ref) != w.ref })
	case corev1alpha1.KindClusterPropagationPolicy:
		out.ClusterPropagationPolicies = only(set.ClusterPropagationPolicies, func(p *placement.Policy) bool { return unversioned(p.Ref) != w.ref })
	default:
		out.Clusters = slices.DeleteFunc(slices.Clone(set.Clusters), func(c manifest.Cluster) bool { return named(c.Cluster) })
	}
	return &out
}
