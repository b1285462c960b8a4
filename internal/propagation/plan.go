package propagation

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// Reasons of the condition Synced, and of rows.
const (
	reasonSynced          = "Synced"
	reasonProgressing     = "Progressing"
	reasonNoCluster       = "NoClusterMatches"
	reasonPolicyNotFound  = "PolicyNotFound"
	reasonPolicyDeleted   = "PolicyDeleted"
	reasonInvalidPolicy   = "InvalidPolicy"
	reasonUnsupported     = "UnsupportedPolicy"
	reasonInvalidLabel    = "InvalidLabel"
	reasonHeld            = "HeldByAnnotation"
	reasonOverrideFailed  = "OverrideFailed"
	reasonAlreadyExists   = "AlreadyExists"
	reasonRejected        = "Rejected"
	reasonTypeNotServed   = "TypeNotServed"
	reasonUnreachable     = "Unreachable"
	reasonUnreadable      = "Unreadable"
	reasonWriteFailed     = "WriteFailed"
	reasonNotReady        = "ClusterNotReady"
	reasonBeingDeleted    = "BeingDeleted"
	reasonSourceGone      = "SourceGone"
	reasonNoLongerPlaced  = "NoLongerPlaced"
	reasonDeletionBlocked = "DeletionFailed"
)

// plan is what should be true of one object on all clusters.
type plan struct {
	seq        int64 // Grows with each plan of the key.
	gvr        schema.GroupVersionResource
	kind       string
	uid        types.UID
	generation int64

	// gone: there is no such object, or it asks for nothing: copies are removed.
	gone bool
	// held says why nothing may be written or removed for now; empty if it may.
	held, heldMessage string

	targets  map[string]*target // By cluster.
	variants []*variant
	warnings []string
	// propagation is the policy that placed the object; overrides those that it
	// was rendered with; deleted those that it names and that are gone.
	propagation *refractv1alpha1.PolicyReference
	overrides   []refractv1alpha1.PolicyReference
	deleted     []refractv1alpha1.PolicyReference
	before      memory // What the plan was made with.
}

// target is what should be true on one cluster.
type target struct {
	variant *variant // Nil when err is not.
	// err says why the object could not be rendered for the cluster, which keeps
	// what it has.
	err      error
	policies []refractv1alpha1.PolicyReference
	warnings []string
}

// variant is one of the distinct contents.
type variant struct {
	*content

	changes []tree.Change
	secret  bool // Whether values must not be shown.
}

// memory is what must be remembered of the plans before.
type memory struct {
	// uid is that of the object; another object of the name begins anew.
	uid types.UID
	// placed are the clusters that have, or may have, a copy.
	placed []string
	// leaving are clusters besides those whose copy is to go and is still there, as
	// was reported before a restart.
	leaving []string
	// rendered are override policies that copies were rendered with, without
	// generation.
	rendered []tree.Policy
}

// surroundings are what a plan depends on besides the object.
type surroundings struct {
	hub         string // UID of the hub.
	clusters    []placement.Cluster
	propagation func(tree.Policy) *placement.Policy
	override    func(tree.Policy) *override.Policy
}

// decide makes the plan of one object. It is pure.
func decide(src source, was memory, s *surroundings) *plan {
	obj := src.object
	p := &plan{gvr: src.gvr, kind: src.kind, targets: map[string]*target{}}
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		p.gone = true
		return p
	}
	ref, ok, warnings, err := placement.Named(obj.GetLabels(), obj.GetNamespace())
	if !ok {
		p.gone = true
		return p
	}
	p.uid, p.generation = obj.GetUID(), obj.GetGeneration()
	if was.uid != p.uid {
		was = memory{uid: p.uid}
	}
	p.before = was
	p.warnings = slices.Concat(warnings, placement.Ignored(obj.GetAnnotations()))
	if err != nil {
		return p.hold(reasonInvalidLabel, err.Error())
	}
	if key := placement.Held(obj.GetAnnotations()); key != "" {
		return p.hold(reasonHeld, fmt.Sprintf("annotation %s: nothing is written and nothing removed", key))
	}
	policies, held := p.findOverrides(obj, was, s)
	if held {
		return p
	}
	clusters, held := p.place(ref, was, s)
	if held {
		return p
	}
	p.render(obj, clusters, policies, s)
	return p
}

func (p *plan) hold(reason, message string) *plan {
	p.held, p.heldMessage = reason, message
	// What the copies were rendered with is still true of them.
	p.overrides, p.deleted = nil, nil
	for _, ref := range p.before.rendered {
		p.overrides = append(p.overrides, *reference(ref))
	}
	return p
}

// place decides on the clusters.
func (p *plan) place(ref tree.Policy, was memory, s *surroundings) (clusters []match.Cluster, held bool) {
	var names []string
	policy := s.propagation(ref)
	switch {
	case policy == nil && len(was.placed) == 0:
		p.hold(reasonPolicyNotFound, fmt.Sprintf("%s does not exist; the object waits for it", ref))
		return nil, true
	case policy == nil:
		// To lose a policy is no reason to take workloads away.
		p.warnings = append(p.warnings, fmt.Sprintf("%s was deleted: the object stays on the clusters that have it", ref))
		names = was.placed
	default:
		p.propagation = reference(policy.Ref)
		p.warnings = append(p.warnings, prefixed(policy.Ref, policy.Inert)...)
		var err error
		names, err = policy.Place(s.clusters, was.placed)
		if err != nil {
			p.hold(reasonFor(err), fmt.Sprintf("%s: %v", policy.Ref, err))
			return nil, true
		}
	}
	for i := range s.clusters {
		if _, found := slices.BinarySearch(names, s.clusters[i].Name); found {
			clusters = append(clusters, s.clusters[i].Cluster)
		}
	}
	return clusters, false
}

// findOverrides returns the override policies in their order of effect.
func (p *plan) findOverrides(obj *unstructured.Unstructured, was memory, s *surroundings) (policies []*override.Policy, held bool) {
	refs, warnings, err := override.Named(obj.GetLabels(), obj.GetNamespace())
	p.warnings = append(p.warnings, warnings...)
	if err != nil {
		p.hold(reasonInvalidLabel, err.Error())
		return nil, true
	}
	for _, ref := range refs {
		policy := s.override(ref)
		switch {
		case policy != nil:
			policies = append(policies, policy)
			p.overrides = append(p.overrides, *reference(policy.Ref))
		case slices.Contains(was.rendered, ref):
			p.deleted = append(p.deleted, *reference(ref))
			p.warnings = append(p.warnings, fmt.Sprintf("%s: %s was deleted: what it changed is taken back", reasonPolicyDeleted, ref))
		default:
			p.hold(reasonPolicyNotFound, fmt.Sprintf("%s does not exist; the object waits for it, so that it does not go out without its overrides", ref))
			return nil, true
		}
	}
	return policies, false
}

func (p *plan) render(obj *unstructured.Unstructured, clusters []match.Cluster, policies []*override.Policy, s *surroundings) {
	source := sourceOf(s.hub, p.uid, p.gvr.GroupResource(), obj.GetNamespace(), obj.GetName())
	secret := p.gvr.Group == "" && p.gvr.Resource == "secrets"
	for _, v := range override.Render(obj, clusters, policies...) {
		t := &target{err: v.Err}
		for _, w := range v.Warnings {
			t.warnings = append(t.warnings, w.String())
		}
		for _, i := range v.Policies {
			t.policies = append(t.policies, *reference(policies[i].Ref))
		}
		if v.Err == nil {
			c, err := encode(v.Object, p.gvr, source)
			t.err = err
			if err == nil {
				t.variant = p.variant(&variant{content: c, changes: v.Changes, secret: secret})
			}
		}
		for _, i := range v.Clusters {
			p.targets[clusters[i].Name] = t
		}
	}
}

// sourceOf is the annotation that a copy carries: the hub, the object there, and
// the copy itself. Controllers on a member that hand annotations down to what
// they derive from a copy do not make more copies by that.
func sourceOf(hub string, uid types.UID, resource schema.GroupResource, namespace, name string) string {
	return hub + "/" + string(uid) + copyName(resource, namespace, name)
}

func copyName(resource schema.GroupResource, namespace, name string) string {
	return "/" + resource.String() + "/" + namespace + "/" + name
}

// variant returns the one with the same content that is there already, or adds v.
func (p *plan) variant(v *variant) *variant {
	for _, is := range p.variants {
		if is.hash == v.hash {
			return is
		}
	}
	p.variants = append(p.variants, v)
	return v
}

// remember is the memory after p.
func (p *plan) remember(was memory) memory {
	if p.gone {
		return was
	}
	if p.held != "" {
		// Copies of an earlier object of the name may still be where they were.
		return memory{uid: p.uid, placed: was.placed, rendered: p.before.rendered}
	}
	now := memory{uid: p.uid}
	for name := range p.targets {
		now.placed = append(now.placed, name)
	}
	slices.Sort(now.placed)
	for _, refs := range [][]refractv1alpha1.PolicyReference{p.overrides, p.deleted} {
		for _, r := range refs {
			now.rendered = append(now.rendered, tree.Policy{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
		}
	}
	return now
}

func reference(p tree.Policy) *refractv1alpha1.PolicyReference {
	return &refractv1alpha1.PolicyReference{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name, Generation: p.Generation}
}

func prefixed(policy tree.Policy, warnings []string) []string {
	out := make([]string, len(warnings))
	for i, w := range warnings {
		out[i] = policy.String() + ": " + w
	}
	return out
}

func reasonFor(err error) string {
	if errors.Is(err, placement.ErrUnsupported) {
		return reasonUnsupported
	}
	return reasonInvalidPolicy
}
