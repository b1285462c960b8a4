package placement

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Without an approval, one decision may remove an object from this many clusters.
const (
	mostLost        = 2  // Clusters.
	mostLostPercent = 30 // Of the clusters that the object is on.
)

// LosesMuch reports whether a decision must wait for approval because an object would lose too many clusters: more than
// two, and more than 30 %. Argument lost is the number of clusters that it would lose, and argument of is the number of
// clusters that have it now.
func LosesMuch(lost, of int) bool { return lost > mostLost && lost*100 > of*mostLostPercent }

// Hold is a change of a placement that waits for approval. It must not be modified.
type Hold struct {
	// Number identifies the change. All objects of a policy have the same number. A new generation of the policy, or a
	// change of the chosen clusters, gives a new number. The readiness of clusters does not matter. Any client can
	// compute the number, so it is no approval: see [Question].
	Number string
	// Of is the number of clusters that have the object.
	Of int
	// Leaves are the clusters that the object would leave. Joins are the clusters to which it would be added. Both are
	// sorted.
	Leaves, Joins []string
	// Unnamed is true if the policy no longer names or selects clusters, and Joins are the result of this.
	Unnamed bool

	// Together is the loss of all objects of the namespace. It is nil if the object's own change is reason enough for
	// the hold.
	Together *Loss

	approved Decision
}

// Question is the request for approval of a change of a placement. Users approve the change by one of its tokens. The
// zero Question means that users have not been asked yet. The tokens are random, so no client can approve a change
// before the request.
type Question struct {
	// Number is the number of the change.
	Number string
	// Token approves the change for one object.
	Token string
	// Shared approves the change for all objects of the same request; empty if no policy shows the request in its
	// status.
	Shared string
}

// QuestionOf returns the question in the Propagation of an object. It is zero if there is no question, or only one from
// an early version of Refract, in which clients could compute approvals.
func QuestionOf(held *refractv1alpha1.HeldPlacement) Question {
	if held == nil || held.Token == "" {
		return Question{}
	}
	return Question{Number: held.Number, Token: held.Token, Shared: held.PolicyToken}
}

// Approved returns the number of the change that the annotation on the Propagation of one object approves; empty if it
// approves none.
func (q Question) Approved(annotation string) string {
	if q.Token == "" || q.Token != annotation {
		return ""
	}
	return q.Number
}

// Approved returns the number of the change that is approved for an object of the policy, by the policy or by the
// annotation on the object's Propagation; empty if none is approved.
func (p *Policy) Approved(q Question, annotation string) string {
	if q.Shared != "" && q.Shared == p.approved {
		return q.Number
	}
	return q.Approved(annotation)
}

// Standing returns the question, or the zero Question if users must be asked again with new tokens. They must be asked
// again if the annotation of the policy contains the token, but the status of the policy does not: either the status
// was lost, or the annotation came too late.
func (p *Policy) Standing(q Question) Question {
	if q.Shared != "" && q.Shared == p.answer && p.approved == "" {
		return Question{}
	}
	return q
}

// Approval returns the token in the annotation of a policy if it approves a change of the placement; empty if it does
// not. The annotation is an approval only if the status shows the same token, because a copy of the policy has the
// annotation as well.
func Approval(policy metav1.Object, status *corev1alpha1.PolicyStatus) string {
	token := policy.GetAnnotations()[refractv1alpha1.ApprovePlacementAnnotation]
	if status.PlacementHeld == nil || status.PlacementHeld.Token != token {
		return ""
	}
	return token
}

// Approved returns the decision after the approval.
func (h *Hold) Approved() Decision { return h.approved }

// String describes the change: "would leave 28 of 30 clusters (eu-1, eu-2, eu-3 and 25 more)".
func (h *Hold) String() string {
	text := ""
	if len(h.Leaves) > 0 {
		text = fmt.Sprintf("would leave %d of %d clusters (%s)", len(h.Leaves), h.Of, list(h.Leaves))
	}
	if l := h.Together; l != nil {
		text += fmt.Sprintf(", and all objects of the namespace together %d of %d", len(l.Leaves), l.Of)
	}
	if len(h.Joins) == 0 {
		return text
	}
	if text != "" {
		text += " and be added to " + clusterCount(len(h.Joins))
	} else {
		text = "would be added to " + clusterCount(len(h.Joins))
	}
	text += " (" + list(h.Joins) + ")"
	if h.Unnamed {
		text += ", as the policy no longer names or selects clusters"
	}
	return text
}

func clusterCount(n int) string {
	if n == 1 {
		return "1 other cluster"
	}
	return strconv.Itoa(n) + " other clusters"
}

// Withdrawal returns the hold for an object that is on these clusters and no longer requests propagation; nil if its
// removal needs no approval. uid is the UID of the object.
func Withdrawal(uid types.UID, placed []Target) *Hold {
	if !LosesMuch(len(placed), len(placed)) {
		return nil
	}
	return &Hold{Number: number("withdrawn", string(uid)), Of: len(placed), Leaves: missing(placed, nil)}
}

// hold returns the change of the placement that must wait for approval before the decision takes effect; nil if there
// is none.
//
// Only hold protects against these mistakes of users: a typo in a selector, an affinity or a list of clusters; a list
// that is empty by mistake; labels that many clusters have lost; a taint on many clusters; the name of a wrong policy.
func (p *Policy) hold(r *Request, d *Decision) *Hold {
	empties := r.Narrowed && !p.narrows()
	if len(r.Previous) == 0 || (!empties && slices.EqualFunc(r.Previous, d.Targets, func(a, b Target) bool { return a.Cluster == b.Cluster })) {
		return nil
	}
	there := r.there()
	h := &Hold{Of: len(there), Leaves: r.alone(missing(there, d.Targets)), Joins: r.alone(missing(d.Targets, there)), approved: *d}
	if empties && len(there) > 0 {
		if open := r.alone(missing(p.open(r), there)); len(open) > 0 {
			h.Joins, h.Unnamed = open, true
		}
	}
	alone, together := LosesMuch(len(h.Leaves), h.Of), r.Together.takes(h.Leaves)
	if !h.Unnamed && (!alone && !together || p.scaledDown(r, there)) {
		return nil
	}
	if together && !alone {
		h.Together = r.Together
	}
	h.Number = p.number(r)
	if h.Number == r.Approved {
		return nil
	}
	return h
}

// waits returns the decision for the time before the approval: the object keeps its clusters, and its replicas on each.
func (p *Policy) waits(r *Request, h *Hold) Decision {
	d := Decision{Targets: r.there(), Hash: r.Hash, Narrowed: r.Narrowed, Held: h}
	if sum, known := sumOf(d.Targets); known && p.total(r) != nil && sum != *r.Replicas {
		d.Warnings = append(d.Warnings, fmt.Sprintf(
			"the shares stay unchanged until the change of the placement is approved: they add up to %d, and the object has %s", sum, replicas(r.Replicas)))
	}
	return d
}

// scaledDown reports whether the object leaves these clusters only because users have reduced its replicas.
func (p *Policy) scaledDown(r *Request, there []Target) bool {
	total := p.total(r)
	before, known := sumOf(there)
	if total == nil || !known || *total >= before {
		return false
	}
	same := *r
	same.Replicas = &before
	anew := p.decide(&same, p.hash(&same))
	leaves := r.alone(missing(there, anew.Targets))
	return !LosesMuch(len(leaves), len(there)) && !r.Together.takes(leaves)
}

// narrows reports whether the policy names or selects clusters, instead of choosing all.
func (p *Policy) narrows() bool { return p.listed != nil || p.selector.Narrows() }

// open returns the clusters that the policy chooses, ready or not.
func (p *Policy) open(r *Request) []Target {
	var all []Target
	for i := range r.Clusters {
		if c := &r.Clusters[i]; p.chooses(c) && p.tolerates(c.Taints, false) {
			all = append(all, Target{Cluster: c.Name})
		}
	}
	return all
}

// alone returns the names, without the clusters to which the object follows other objects.
func (r *Request) alone(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(r.Besides, name) })
}

// number identifies the policy at its generation, and the clusters that it chooses.
func (p *Policy) number(r *Request) string {
	parts := []string{p.Ref.String(), p.uid, strconv.FormatInt(p.Ref.Generation, 10)}
	for i := range r.Clusters {
		if c := &r.Clusters[i]; p.chooses(c) && p.tolerates(c.Taints, true) {
			parts = append(parts, c.Name)
		}
	}
	return number(parts...)
}

// numbers is the count of possible numbers. It is small, so that users can read and copy a number easily.
const numbers = 1_000_000_000

func number(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return strconv.FormatUint(binary.BigEndian.Uint64(h.Sum(nil))%numbers, 10)
}
