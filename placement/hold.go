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

// The limits of what an object may lose in one decision without an approval.
const (
	mostLost        = 2  // Clusters.
	mostLostPercent = 30 // Of the clusters that the object is on.
)

// LosesMuch reports whether an object that is on so many clusters, and would lose some of them
// in one decision, waits for approval: it would lose more than two of them and more than 30 %.
func LosesMuch(lost, of int) bool { return lost > mostLost && lost*100 > of*mostLostPercent }

// Hold is a change of a placement that waits for approval. It is not to be modified.
type Hold struct {
	// Number stands for the change. It is the same for all objects of a policy, and another one
	// after a change of the policy or of the clusters that it chooses. It does not depend on
	// which clusters are ready. Anybody can compute it, so it approves nothing: see [Question].
	Number string
	// Of is the number of clusters that the object is on.
	Of int
	// Leaves are the clusters that the object would leave, and Joins those that it would come
	// to. Sorted.
	Leaves, Joins []string
	// Unnamed is whether clusters are joined because the policy names and selects none any more.
	Unnamed bool

	// Together is what the objects of the namespace would leave together, if that is why this waits.
	Together *Loss

	approved Decision
}

// Question is what users were asked about a change of a placement, which they approve by one of its tokens; zero
// if they were not asked yet. The tokens are random: nobody can approve a change before it is asked about.
type Question struct {
	// Number is that of the change.
	Number string
	// Token approves the change for one object.
	Token string
	// Shared approves the change for all objects that were asked about together; empty if no policy
	// asks for the change.
	Shared string
}

// QuestionOf is what the report of an object says that users were asked; zero if it says nothing, or what it says
// is from a time when anybody could compute what approved a change.
func QuestionOf(held *refractv1alpha1.HeldPlacement) Question {
	if held == nil || held.Token == "" {
		return Question{}
	}
	return Question{Number: held.Number, Token: held.Token, Shared: held.PolicyToken}
}

// Approved returns the number of the change that is approved for one object, whose report has the annotation; empty if
// none is.
func (q Question) Approved(annotation string) string {
	if q.Token == "" || q.Token != annotation {
		return ""
	}
	return q.Number
}

// Approved returns the number of the change that is approved for an object of the policy: by the policy, or by
// the annotation of the object's report; empty if none is.
func (p *Policy) Approved(q Question, annotation string) string {
	if q.Shared != "" && q.Shared == p.approved {
		return q.Number
	}
	return q.Approved(annotation)
}

// Standing returns the question; zero if the policy has the answer to it and does not ask it. Then the status of the policy was lost, or the
// answer was not carried out in time: it is to be asked anew, by other tokens.
func (p *Policy) Standing(q Question) Question {
	if q.Shared != "" && q.Shared == p.answer && p.approved == "" {
		return Question{}
	}
	return q
}

// Approval returns the token by which a policy approves a change of the placement of its objects; empty if
// it approves none. The annotation alone approves nothing: somebody may have copied it with the policy.
func Approval(policy metav1.Object, status *corev1alpha1.PolicyStatus) string {
	token := policy.GetAnnotations()[refractv1alpha1.ApprovePlacementAnnotation]
	if status.PlacementHeld == nil || status.PlacementHeld.Token != token {
		return ""
	}
	return token
}

// Approved is the decision after the approval.
func (h *Hold) Approved() Decision { return h.approved }

// String says what waits: "would leave 28 of 30 clusters (eu-1, eu-2, eu-3 and 25 more)".
func (h *Hold) String() string {
	text := ""
	if len(h.Leaves) > 0 {
		text = fmt.Sprintf("would leave %d of %d clusters (%s)", len(h.Leaves), h.Of, list(h.Leaves))
	}
	if l := h.Together; l != nil {
		text += fmt.Sprintf(", of the %d of %d that all objects of the namespace would leave", len(l.Leaves), l.Of)
	}
	if len(h.Joins) == 0 {
		return text
	}
	if text != "" {
		text += " and come to " + clusterCount(len(h.Joins))
	} else {
		text = "would come to " + clusterCount(len(h.Joins))
	}
	text += " (" + list(h.Joins) + ")"
	if h.Unnamed {
		text += ", as the policy names and selects no clusters any more"
	}
	return text
}

func clusterCount(n int) string {
	if n == 1 {
		return "1 other cluster"
	}
	return strconv.Itoa(n) + " other clusters"
}

// Withdrawal returns what waits for approval if an object does not ask to be propagated any more
// and is on these clusters; nil if nothing does. The UID is that of the object.
func Withdrawal(uid types.UID, placed []Target) *Hold {
	if !LosesMuch(len(placed), len(placed)) {
		return nil
	}
	return &Hold{Number: number("withdrawn", string(uid)), Of: len(placed), Leaves: missing(placed, nil)}
}

// hold returns what of a decision waits for approval; nil if nothing does.
//
// The decision may be a mistake in these cases, of which no other part of Refract knows: a typo
// in a selector, an affinity or a list; a list that is empty by mistake; labels that many
// clusters have lost; a taint on many clusters; a name of another policy.
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

// waits returns the decision to leave the object where it is, with the shares that it has there, until
// the change is approved.
func (p *Policy) waits(r *Request, h *Hold) Decision {
	d := Decision{Targets: r.there(), Hash: r.Hash, Narrowed: r.Narrowed, Held: h}
	if sum, known := sumOf(d.Targets); known && p.total(r) != nil && sum != *r.Replicas {
		d.Warnings = append(d.Warnings, fmt.Sprintf(
			"the shares stay as they are until the change of the placement is approved: they add up to %d, and the object has %s", sum, replicas(r.Replicas)))
	}
	return d
}

// scaledDown reports whether the object only leaves so many clusters because it has fewer
// replicas than before, which its users asked for.
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

// narrows reports whether the policy names or selects clusters, so that it does not choose all.
func (p *Policy) narrows() bool { return p.listed != nil || p.selector.Narrows() }

// open returns the clusters that the policy chooses, be they ready or not.
func (p *Policy) open(r *Request) []Target {
	var all []Target
	for i := range r.Clusters {
		if c := &r.Clusters[i]; p.chooses(c) && p.tolerates(c.Taints, false) {
			all = append(all, Target{Cluster: c.Name})
		}
	}
	return all
}

// alone returns the clusters without those on which the object is because it travels with others.
func (r *Request) alone(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(r.Besides, name) })
}

// number stands for the policy as it is, and the clusters that it chooses.
func (p *Policy) number(r *Request) string {
	parts := []string{p.Ref.String(), p.uid, strconv.FormatInt(p.Ref.Generation, 10)}
	for i := range r.Clusters {
		if c := &r.Clusters[i]; p.chooses(c) && p.tolerates(c.Taints, true) {
			parts = append(parts, c.Name)
		}
	}
	return number(parts...)
}

// numbers is how many numbers there are: people read them, and write them down.
const numbers = 1_000_000_000

func number(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return strconv.FormatUint(binary.BigEndian.Uint64(h.Sum(nil))%numbers, 10)
}
