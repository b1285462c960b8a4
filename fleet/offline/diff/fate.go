package diff

import (
	"fmt"
	"slices"

	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// copies are the copies of one object on a group of clusters. All clusters of the group have one variant before the
// change, and all have one, perhaps another, after it. So the copies have the same fate.
type copies struct {
	was, is  int // Indexes of variants, or the constants nothing and unknown.
	joined   bool
	least    int64 // The minimum number of pods that an autoscaler allows, or notScaled.
	clusters set
}

// fate is the difference of copies.
type fate struct {
	status  Status
	reason  string
	before  map[string]any // Nil if not known.
	after   map[string]any
	changes []Change
	impacts []Impact
	rolls   Rolls // Of one copy.
	// variant distinguishes created copies of one object with different content.
	variant int
}

// judge compares one object of both sets.
type judge struct {
	*subject

	before, after *render.Outcome // Nil on a side without the object.
	wasErr, isErr error           // The error of the object as a whole.
	waits         *render.Outcome // The outcome whose change awaits approval; nil without one.
	least         []int64         // By cluster, as in copies; nil without an autoscaler.
}

// subject compares one object on all clusters. waits is the outcome whose change awaits approval; nil without one.
func (c *comparison) subject(s *subject, before, after, waits *render.Outcome) {
	j := &judge{subject: s, before: before, after: after, wasErr: failure(before), isErr: failure(after), waits: waits, least: c.least[s.id]}
	all := c.copiesOf(j)
	about := reference(s)
	c.noteOfObject(j, about, all)
	if after != nil && after.Held != "" {
		c.noteOfHeld(j, about, all)
		return
	}
	changing := newSet(len(c.clusters))
	for i := range all {
		fate, ok := j.fate(&all[i])
		if ok && all[i].was != nothing && all[i].is != nothing {
			changing.addAll(&all[i].clusters)
		}
		switch {
		case ok:
			c.groups.add(s, about, &all[i].clusters, fate)
		case all[i].is != nothing && j.errAfter(&all[i]) != nil:
			c.notes.add(about, &all[i].clusters, fmt.Sprintf("fails as before: %v", j.errAfter(&all[i])))
		}
	}
	c.goesOut(j, about, changing)
	switch {
	case len(all) == 0 && j.isErr != nil:
		c.failsUnplaced(j, about)
	case j.wasErr != nil && j.isErr == nil && (j.after == nil || len(j.after.Clusters) == 0):
		c.cannotCompare(about, j.before, fmt.Sprintf("is not placed any more, and failed before: %v", j.wasErr))
	}
}

// failsUnplaced reports an object that fails as a whole and has no copy.
func (c *comparison) failsUnplaced(j *judge, about render.Object) {
	switch {
	case j.before == nil:
		c.groups.add(j.subject, about, newSet(len(c.clusters)), fate{status: Failing, reason: j.isErr.Error()})
	case j.wasErr != nil:
		c.cannotCompare(about, j.after, fmt.Sprintf("fails as before: %v", j.isErr))
	default:
		c.notes.add(about, nil, fmt.Sprintf("is on no cluster, and fails now: %v", j.isErr))
	}
}

// cannotCompare reports an object that failed as a whole, so that its copies before or after the change are not known.
// On a hub, the controllers wait and nothing changes.
func (c *comparison) cannotCompare(about render.Object, failed *render.Outcome, why string) {
	if c.live {
		c.notes.add(about, nil, why)
		return
	}
	c.notes.add(about, nil, "could not be compared: "+why)
	reason := failure(failed).Error()
	c.unknown = append(c.unknown, Unknown{Object: about, Reason: reason, Hint: hintOf(failed)})
}

// hintOf returns advice on an object that failed as a whole; empty without advice.
func hintOf(o *render.Outcome) string {
	f := o.Errors()[0]
	there := f.Policy != nil && o.Propagation != nil && o.Propagation.Kind == f.Policy.Kind // The policy exists and chooses no clusters.
	if f.Hint == "" && f.Policy != nil && !there {
		return "pass policies and other input of both sides with -f"
	}
	return f.Hint
}

// copiesOf groups the shown clusters that have the same variants of the object. Clusters that leave the fleet are left
// out, because nothing is written to them any more.
func (c *comparison) copiesOf(j *judge) []copies {
	c.spread(j.before, c.was)
	c.spread(j.after, c.is)
	var all []copies
	last := 0
	for i := range c.clusters {
		at := &c.clusters[i]
		is := copies{was: c.was[i], is: c.is[i], joined: at.joins, least: notScaled}
		if j.least != nil {
			is.least = j.least[i]
		}
		if j.wasErr != nil && is.is != nothing {
			is.was = unknown
		}
		if j.isErr != nil && is.was != nothing {
			is.is = unknown
		}
		if !at.shown || !at.stays || (is.was == nothing && is.is == nothing) {
			continue
		}
		alike := func(o copies) bool {
			return o.was == is.was && o.is == is.is && o.joined == is.joined && o.least == is.least
		}
		if len(all) == 0 || !alike(all[last]) { // Neighbors often have the same variants.
			last = slices.IndexFunc(all, alike)
		}
		if last < 0 {
			last = len(all)
			is.clusters = *newSet(len(c.clusters))
			all = append(all, is)
		}
		all[last].clusters.add(i)
	}
	return all
}

// errBefore and errAfter return the error of rendering the copies on each side; nil without an error or without copies.
func (j *judge) errBefore(c *copies) error { return errOf(j.before, c.was, j.wasErr) }
func (j *judge) errAfter(c *copies) error  { return errOf(j.after, c.is, j.isErr) }

func errOf(o *render.Outcome, variant int, whole error) error {
	switch variant {
	case nothing:
		return nil
	case unknown:
		return whole
	default:
		return o.Variants[variant].Err
	}
}

// fate returns the difference of copies; ok is false if nothing changes.
func (j *judge) fate(c *copies) (f fate, ok bool) {
	wasErr, isErr := j.errBefore(c), j.errAfter(c)
	f.before, f.after = contentOf(j.before, c.was), contentOf(j.after, c.is)
	switch {
	case c.is == nothing:
		f.status, f.reason = Deleted, j.whyDeleted()
		f.impacts = slices.Concat(impactsOfDeletion(j.id.GroupKind), j.impactsOfWaiting())
	case isErr != nil && wasErr != nil:
		return fate{}, false
	case isErr != nil:
		f.status, f.reason = Failing, isErr.Error()
	case wasErr != nil:
		f.status, f.reason, f.variant = Recovered, wasErr.Error(), j.distinct(c.is)
	case c.was == nothing:
		f.status, f.reason, f.variant = Created, j.whyCreated(c.joined), j.distinct(c.is)
		f.impacts = j.impactsOfWaiting()
	default:
		return j.change(f, &j.before.Variants[c.was], &j.after.Variants[c.is], c.least)
	}
	return f, true
}

// change compares two variants.
func (j *judge) change(f fate, before, after *override.Variant, least int64) (fate, bool) {
	if tree.Equal(f.before, f.after) {
		return fate{}, false
	}
	e := edit{kind: j.id.GroupKind, before: f.before, after: f.after, least: least, steps: stepsBetween(f.before, f.after)}
	f.status = Changed
	f.changes = make([]Change, len(e.steps))
	for i := range e.steps {
		f.changes[i] = e.steps[i].authored(before.Changes, after.Changes)
	}
	f.impacts, f.rolls = e.impacts()
	return f, true
}

// contentOf returns the content of a variant; nil if the cluster has no copy or its content is not known.
func contentOf(o *render.Outcome, variant int) map[string]any {
	if variant < 0 || o.Variants[variant].Err != nil {
		return nil
	}
	return o.Variants[variant].Object.Object
}

// distinct returns the index of the first variant after the change with the same content.
func (j *judge) distinct(variant int) int {
	is := contentOf(j.after, variant)
	for i := range variant {
		if other := contentOf(j.after, i); other != nil && tree.Equal(other, is) {
			return i
		}
	}
	return variant
}

func (j *judge) whyCreated(joined bool) string {
	switch {
	case j.from == nil:
		return "the object is new"
	case j.before == nil && len(j.after.Follows) == 0:
		return "the object has a propagation label now"
	case joined:
		return "the cluster is new"
	case len(j.after.Follows) > 0:
		return fmt.Sprintf("the object follows %s there now", render.FollowsText(j.after.Follows))
	default:
		return fmt.Sprintf("%s chooses the cluster now", j.after.Propagation)
	}
}

func (j *judge) whyDeleted() string {
	switch {
	case j.to == nil:
		return "the object is gone"
	case j.after == nil && len(j.before.Follows) > 0:
		return fmt.Sprintf("the object does not follow %s any more", render.FollowsText(j.before.Follows))
	case j.after == nil:
		return "the object has no propagation label any more"
	case j.to.Content.GetDeletionTimestamp() != nil:
		return "the object is being deleted"
	case len(j.before.Follows) > 0:
		return fmt.Sprintf("the object does not follow %s there any more", render.FollowsText(j.before.Follows))
	default:
		return fmt.Sprintf("%s does not choose the cluster any more", j.after.Propagation)
	}
}
