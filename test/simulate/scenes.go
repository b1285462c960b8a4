package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Scenes are operations of several acts that matter only together, at a certain distance in time. As operations of their
// own, other acts would nearly always come between them. Only worlds with a focus have scenes: an additional operation
// would change the histories of all other seeds.
//
//nolint:gochecknoglobals // They are constants.
var (
	// floorScenes are about edits that Refract may see before an earlier floor, as the watches of types differ in speed.
	floorScenes = []operation{
		{"floor, then edits", 150, (*World).floorThenEdits},
	}
	// lossScenes are about copies that are lost during a long minReadySeconds.
	lossScenes = []operation{
		{"long wave", 120, (*World).beginLongWave},
		{"lose waiting copies", 120, (*World).loseWaiting},
	}
)

// floorThenEdits sets the floor on a namespace after some quiet minutes, and edits objects there before all watches have
// shown the floor. It creates the floor if it does not exist, and removes its label from a namespace that has it.
func (w *World) floorThenEdits() (actor, text string) {
	if w.Hub.Server.Peek(kindRollouts.GroupVersionResource, "", "floor") == nil {
		return w.write(operator, kindRollouts, "", "floor", floorSpecs)
	}
	user, space := w.tenant()
	if w.oracle.floorOf(space) != "" {
		return w.setFloor(space)
	}
	// After a change of a policy, a cluster or a Propagation, Refract may write by the state before for this time.
	actor, text = w.wait(outdated + time.Duration(1+w.Rand.IntN(60))*time.Second)
	by, set := w.setFloor(space)
	if set == "" {
		return actor, text
	}
	w.Journal.add(w, by, set)
	for range 1 + w.Rand.IntN(3) {
		w.settle() // The edit is later than the floor.
		if w.Rand.IntN(4) == 0 {
			w.deliver()
		}
		if by, edited := w.editIn(user, space); edited != "" {
			w.Journal.add(w, by, edited)
		}
	}
	return actor, text
}

// longWave is the text of the spec in [rolloutSpecs] whose minReadySeconds is longer than the tolerance of the oracle.
const longWave = "tier=test for five minutes, then the others; back if one fails"

// beginLongWave has objects of a namespace obey a RolloutPolicy with a long minReadySeconds, and edits them.
func (w *World) beginLongWave() (actor, text string) {
	user, space := w.tenant()
	h := w.hand(w.Hub, user)
	policy := w.Hub.Server.Peek(kindRollout.GroupVersionResource, space, "careful")
	if policy == nil || variantOf(policy, rolloutSpecs) != longWave {
		at := slices.IndexFunc(rolloutSpecs, func(v variant) bool { return v.text == longWave })
		return w.write(user, kindRollout, space, "careful", rolloutSpecs[at:at+1])
	}
	var texts []string
	for range 1 + w.Rand.IntN(3) {
		g, _ := w.there(h, space, true)
		if g == nil {
			break
		}
		change := pick(w, g.edits)
		what := h.changed(g.kind, space, g.object, func(o *unstructured.Unstructured) bool {
			label(o, refractv1alpha1.RolloutPolicyLabel, "careful")
			label(o, corev1alpha1.PropagationPolicyLabel, "all")
			return change(w, o)
		})
		if what != "" {
			texts = append(texts, named(g.kind, space, g.object)+": "+what)
		}
	}
	if texts == nil {
		return "", ""
	}
	return user, "edits objects on the hub that obey RolloutPolicy careful: " + strings.Join(texts, "; ")
}

// waitingCopy is a copy that is ready, and must stay so for the minReadySeconds of its wave.
type waitingCopy struct {
	cluster *Cluster
	good    *good
	space   string
}

// waitingCopies returns the copies of the tenants that wait for the end of their minReadySeconds, by the Propagations.
func (w *World) waitingCopies() (all []waitingCopy) {
	rollouts, of := w.rollouts()
	for i, r := range rollouts {
		for _, entry := range r.Rollout.Current {
			c := w.oracle.clusterNamed(entry.Name)
			if entry.Ready == nil || c == nil || c.Down {
				continue
			}
			for j := range goods {
				g, space := &goods[j], of[i].object.GetNamespace()
				if named(g.kind, space, g.object) == of[i].text && w.hand(&c.Target, "carol").get(g.kind, space, g.object) != nil {
					all = append(all, waitingCopy{c, g, space})
				}
			}
		}
	}
	return all
}

// loseWaiting deletes or changes some copies, or builds a cluster anew, while copies wait for the end of minReadySeconds.
func (w *World) loseWaiting() (actor, text string) {
	if len(w.waitingCopies()) == 0 {
		return "", ""
	}
	actor, text = w.wait(time.Duration(1+w.Rand.IntN(150)) * time.Second)
	all := w.waitingCopies()
	if len(all) > 0 && w.Rand.IntN(8) == 0 {
		if by, built := w.rebuild(pick(w, all).cluster); built != "" {
			w.Journal.add(w, by, built)
			return actor, text
		}
	}
	for _, copied := range all {
		h, what := w.hand(&copied.cluster.Target, "carol"), named(copied.good.kind, copied.space, copied.good.object)
		switch w.Rand.IntN(3) {
		case 0:
			if h.delete(copied.good.kind, copied.space, copied.good.object, metav1.DeleteOptions{}) == nil {
				w.Journal.add(w, "carol", fmt.Sprintf("deletes %s on cluster %s", what, copied.cluster.Name))
			}
		case 1:
			change := pick(w, copied.good.edits)
			if did := h.changed(copied.good.kind, copied.space, copied.good.object, func(o *unstructured.Unstructured) bool { return change(w, o) }); did != "" {
				w.Journal.add(w, "carol", fmt.Sprintf("edits %s on cluster %s: %s", what, copied.cluster.Name, did))
			}
		}
	}
	return actor, text
}
