package propagation

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/release"
)

// What clusters hold of a governed object of which there is no record is good: somebody has made the object again, or the record is
// lost. It is stored nowhere on the hub, so a cluster keeps its copy as it is until its wave has come.

// keeps reports whether the copy on a cluster that is to keep what it was found with, or comes to the object, is left as it is. One that has the newest
// content is cared for like any other, when a record says that the cluster may have that.
func (a *applier) keeps(key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) bool {
	switch {
	case p.governed == nil:
		return false
	case !p.governed.keeps(a.member.Name):
		// A cluster without a copy gets its first at once. What this replica has written since the record is known.
		r, _ := a.state.clusterStatus(key, a.member.Name)
		comes := r.hash == "" && r.reason != reasonKeepsContent || a.setBack(p, t, r, have) ||
			p.governed.enters(a.member.Name) && mayBeForeign(r.reason, r.hash)
		return comes && found == member.Present && !a.holdsNewest(key, p, t, have)
	}
	return p.governed.recorded == nil || p.governed.recorded.Attempt == 0 || found != member.Present || !a.holdsNewest(key, p, t, have)
}

// setBack reports whether a copy contradicts the record: that says that the cluster holds what it is to have, this replica has not written to it,
// and the copy has the mark of another content. So it is when the hub was restored from a backup: the content of then waits for its turn.
func (a *applier) setBack(p *desiredState, t *target, r clusterStatus, have member.Copy) bool {
	if r.reason == reasonKeepsContent {
		return !release.Awaited(p.governed.recorded, a.member.Name)
	}
	return r.uid == "" && t.variant != nil && r.hash == t.variant.hash && have.Hash != "" && have.Hash != r.hash
}

// keep leaves the copy as it is, and says what it is.
func (a *applier) keep(key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	r := a.statusFor(key, p)
	r.state, r.reason, r.hash = refractv1alpha1.StatePending, reasonAwaitsRollout, ""
	r.message = "nothing is written until it is known what all clusters hold, or until the turn of the cluster has come"
	switch {
	case found != member.Present:
	case have.Native:
		return a.native(key, r)
	case !a.ours(key, have) && !r.stripped(have) && !a.adopts(p, have):
		return a.exists(key, r, have)
	case have.Deleting:
		r.reason, r.message = reasonBeingDeleted, "the copy that is there is being deleted"
	case a.holdsNewest(key, p, t, have):
		r.hash = t.variant.hash
	default:
		r.reason, r.hash = reasonKeepsContent, have.Hash
		r.message = "the cluster keeps the content that it was found with until its turn in the rollout has come"
	}
	return a.done(key, r, 0)
}

// holdsNewest reports whether a copy was written with the content of its target, perhaps for another object of the name.
func (a *applier) holdsNewest(key Key, p *desiredState, t *target, have member.Copy) bool {
	if t.variant == nil || !a.ours(key, have) {
		return false
	}
	source := a.sourceOf(key, p)
	if have.Source == source {
		return have.Hash == t.variant.hash
	}
	b := a.renderer.bodyOf(key, p, t, a.member.Name)
	return b != nil && b.hashWith(t.variant.hash, source, have.Source) == have.Hash
}

// hashWith returns the hash that a copy with this hash and source would have if it came from the other source; empty if it has none.
func (b *body) hashWith(hash, source, other string) string {
	text, err := json.Marshal(other)
	if err != nil {
		return ""
	}
	mark := func(name, value string) []byte { return []byte(`"` + name + `":"` + value + `"`) }
	head := bytes.Replace(b.kept.head, mark(refractv1alpha1.AppliedAnnotation, hash), mark(refractv1alpha1.AppliedAnnotation, string(unhashed)), 1)
	head = bytes.Replace(head, mark(refractv1alpha1.SourceAnnotation, source), slices.Concat([]byte(`"`+refractv1alpha1.SourceAnnotation+`":`), text), 1)
	digest := sha256.New()
	digest.Write([]byte("{"))
	digest.Write(head)
	digest.Write(b.kept.rest)
	return hex.EncodeToString(digest.Sum(nil))[:hashLength]
}
