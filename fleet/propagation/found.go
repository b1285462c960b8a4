package propagation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/rollout"
)

// An object with a rollout policy may have no Propagation, because the object was created again, or the Propagation was
// lost. Then the present content of its clusters counts as good. The hub does not store this content, so a cluster
// keeps its copy unchanged until its wave.

// keeps reports whether the copy on a cluster stays unchanged: the cluster is to keep the content that it was found
// with, or joins the placement of the object. A copy with the newest content is maintained like any other if the
// recorded rollout permits this content on the cluster.
func (a *applier) keeps(key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) bool {
	switch {
	case p.governed == nil:
		return false
	case !p.governed.keeps(a.member.Name):
		// A cluster without a copy gets its first copy at once. The recorded rollout may be older than the last writes of
		// this replica, so its own status of the copy (r) counts, too.
		r, _ := a.state.clusterStatus(key, a.member.Name)
		comes := r.hash == "" && r.reason != reasonKeepsContent || a.setBack(p, t, r, have) ||
			p.governed.enters(a.member.Name) && mayBeForeign(r.reason, r.hash)
		return comes && found == member.Present && !a.holdsNewest(key, p, t, have)
	}
	return p.governed.recorded == nil || p.governed.recorded.Attempt == 0 || found != member.Present || !a.holdsNewest(key, p, t, have)
}

// setBack reports whether a copy contradicts the Propagation. According to the Propagation, the cluster has the content
// of its target. But this replica has not written the copy, and the mark of the copy names other content. This happens
// after a hub was restored from a backup: the content of the backup waits for its wave.
func (a *applier) setBack(p *desiredState, t *target, r clusterStatus, have member.Copy) bool {
	if r.reason == reasonKeepsContent {
		return !rollout.Awaited(p.governed.recorded, a.member.Name)
	}
	return r.uid == "" && t.variant != nil && r.hash == t.variant.hash && have.Hash != "" && have.Hash != r.hash
}

// keep leaves the copy unchanged, and reports its content.
func (a *applier) keep(ctx context.Context, key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	a.guard.done(key)
	r := a.statusFor(key, p)
	r.state, r.reason, r.hash = refractv1alpha1.StatePending, reasonAwaitsRollout, ""
	r.message = "nothing is written until the content of all clusters is known, or until the turn of the cluster comes"
	if found != member.Present && t.variant != nil && p.keeping.Adopt.Includes(a.member.Name) {
		// No watch shows an object that is to be adopted.
		is, err := a.member.Objects.Read(ctx, t.variant.gvr, key.NamespacedName)
		switch {
		case err == nil:
			have, found = is, member.Present
		case !apierrors.IsNotFound(err):
			r.reason, r.message = refusal(err), err.Error()
			return a.failed(key, r)
		}
	}
	switch {
	case found != member.Present:
	case have.Native:
		return a.native(key, r)
	case !a.ours(key, have) && !r.stripped(have) && !a.adopts(p, have):
		return a.exists(key, r, have)
	case have.Deleting:
		r.reason, r.message = reasonBeingDeleted, "the existing copy is being deleted"
	case a.holdsNewest(key, p, t, have):
		r.hash = t.variant.hash
	default:
		r.reason, r.hash = reasonKeepsContent, have.Hash
		r.message = "the cluster keeps its present content until its turn in the rollout"
	}
	return a.done(key, r, 0)
}

// holdsNewest reports whether a copy was written with the content of its target, perhaps for an earlier object of the
// same name.
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

// hashWith returns the hash of this body with another source annotation. hash and source are those in the body. It
// returns an empty hash if the other source cannot be encoded.
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
