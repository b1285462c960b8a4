package simulate

import (
	"encoding/base64"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/revision"
)

// The newest and the former revision of an object may have the same content for one cluster, because its overrides
// replace or remove the changed fields. The change does not concern this cluster, so it is in no wave. When its name or
// its labels change, it gets its content of the former revision at once, which is then the newest content, too.

// storedPart is the data of a ControllerRevision in plain text, with the key that its name may depend on.
type storedPart struct{ data, key []byte }

// partOf returns the part of a ControllerRevision. Its data is nil if the key of the hub does not open it.
func (o *oracle) partOf(stored *unstructured.Unstructured) storedPart {
	p := storedPart{data: encoded(stored.Object["data"])}
	if !revision.IsSealed(stored.GetName()) {
		return p
	}
	if secret := o.w.Hub.Server.Peek(kindSecret.GroupVersionResource, systemNamespace, revision.KeySecret); secret != nil {
		text, _, _ := unstructured.NestedString(secret.Object, "data", revision.KeyName)
		p.key, _ = base64.StdEncoding.DecodeString(text) // Nothing is opened without a valid key.
	}
	p.data, _ = revision.Open(p.data, p.key, stored.GetName())
	return p
}

// store records a ControllerRevision. It prefers content that belongs to the name: a policy engine may have changed it.
// Content is not forgotten when a user deletes it or replaces the key, as processes know it from their memory.
func (r *releases) store(name string, p storedPart) {
	if _, found := r.stored[name]; !found || revision.Check(p.data, name, p.key) == nil {
		r.stored[name] = p
	}
}

// contentOf renders a stored revision for a cluster with its present name and labels. It returns nil if some content is
// unknown or does not belong to its name, or if an override fails.
func (r *releases) contentOf(is *refractv1alpha1.Revision, cluster match.Cluster) *unstructured.Unstructured {
	p := r.stored[is.Object]
	object, err := revision.DecodeObject(p.data, is.Object, p.key)
	if err != nil {
		return nil
	}
	var policies []*override.Policy
	for i := range is.Policies {
		ref := &is.Policies[i]
		policy, err := revision.DecodePolicy(r.stored[ref.Revision].data, ref.Revision, ref.Generation)
		if err != nil {
			return nil
		}
		policies = append(policies, policy)
	}
	return override.Apply(object, cluster, policies...).Object
}

// isContent reports whether a copy has the content of a revision for a cluster with its present name and labels.
func (r *releases) isContent(is *refractv1alpha1.Revision, cluster match.Cluster, copied, on *unstructured.Unstructured) bool {
	content := r.contentOf(is, cluster)
	return content != nil && differs(content, copied, on) == "" && !sentBeside(content, copied)
}

// settle records the revision that all clusters of an object may have.
func (r *releases) settle(key copyKey, was, is *refractv1alpha1.RolloutStatus) {
	if was != nil && was.Phase == refractv1alpha1.RolloutComplete { // After a restore of the hub, an older RolloutStatus is valid again.
		r.good[key] = was.Target.Name
	}
	switch {
	case is.Phase == refractv1alpha1.RolloutComplete:
		r.good[key] = is.Target.Name
	case was != nil && renamed(was, is) && r.good[key] == was.LastGood.Name:
		r.good[key] = is.LastGood.Name
	}
}

// keeps reports whether a written copy has the content of the revision that its cluster has, according to a recent
// RolloutStatus. The RolloutStatus alone does not prove that the revision was released: either a rollout to it was
// Complete, or a write of it to this cluster was checked.
func (r *releases) keeps(o *oracle, c *Cluster, key copyKey, cluster match.Cluster, copied *unstructured.Unstructured) bool {
	names, _ := o.namesNow(c)
	place, on := placeKey{c, key}, o.onHubNow(key)
	for _, e := range slices.Backward(r.records[key]) {
		has := assigned(e.is, names)
		released := has.Name == r.good[key] || has.Name == r.got[place].target
		if released && r.isContent(has, cluster, copied, on) {
			r.got[place] = received{has.Name, copied.GetAnnotations()[refractv1alpha1.AppliedAnnotation]}
			return true
		}
	}
	return false
}

// assigned returns the revision that a cluster has, according to a RolloutStatus.
func assigned(r *refractv1alpha1.RolloutStatus, names []string) *refractv1alpha1.Revision {
	one := func(in func(name string) bool) bool { return slices.ContainsFunc(names, in) }
	switch {
	case r.Superseded != nil && one(func(name string) bool { return slices.Contains(r.OnSuperseded, name) }):
		return r.Superseded
	case r.Phase == refractv1alpha1.RolloutComplete, one(func(name string) bool { return hasTarget(r, name) }):
		return &r.Target
	default:
		return &r.LastGood
	}
}

// isBack reports whether a copy with the content of a reverted target has the last good content, too.
func (o *oracle) isBack(c *Cluster, key copyKey, is *refractv1alpha1.RolloutStatus, have *unstructured.Unstructured) bool {
	names, _ := o.namesNow(c)
	out, at := o.now().at(key, names)
	return out != nil && at >= 0 && is.LastGood.Name == o.releases.good[key] && o.releases.isContent(&is.LastGood, out.Clusters[at], have, o.onHubNow(key))
}
