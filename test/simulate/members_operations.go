package simulate

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// memberOperations returns the operations of people and tools on the clusters.
func memberOperations() []operation {
	return []operation{
		{"controller", 165, (*World).controllerMoves},
		{"controllers", 10, func(w *World) (actor, text string) {
			w.controllersRun()
			return "the clusters' controllers", "do all that there is to do"
		}},
		{"edit copy", 14, (*World).editCopy},
		{"fight over copy", 4, (*World).fightOver},
		{"delete copy", 8, (*World).deleteCopy},
		{"take copy", 5, (*World).takeCopy},
		{"foreign object", 8, (*World).createForeign},
		{"hold copy", 5, (*World).holdCopy},
		{"delete copies' namespace", 2, (*World).deleteMemberSpace},
		{"change lab", 22, (*World).changeLab},
		{"member type", 8, (*World).changeMemberTypes},
		{"front", 6, (*World).changeFront},
		{"no front", 12, (*World).openFronts},
	}
}

// anyCluster returns a random cluster, or nil if its API server is down.
func (w *World) anyCluster() *Cluster {
	c := pick(w, w.Clusters)
	if c.Down {
		return nil
	}
	return c
}

// anyCopy returns a random object in a tenant's namespace on a cluster.
func (w *World) anyCopy(c *Cluster) (g *good, o *unstructured.Unstructured) {
	_, space := w.tenant()
	return w.there(w.hand(&c.Target, "carol"), space, true)
}

func (w *World) editCopy() (actor, text string) {
	c := w.anyCluster()
	if c == nil {
		return "", ""
	}
	g, o := w.anyCopy(c)
	if g == nil {
		return "", ""
	}
	change := pick(w, g.edits)
	what := w.hand(&c.Target, "carol").changed(g.kind, o.GetNamespace(), g.object, func(o *unstructured.Unstructured) bool { return change(w, o) })
	if what == "" {
		return "", ""
	}
	return "carol", fmt.Sprintf("edits %s on cluster %s: %s", named(g.kind, o.GetNamespace(), g.object), c.Name, what)
}

// fightOver repeatedly reverts Refract's writes, as some tools on clusters do.
func (w *World) fightOver() (actor, text string) {
	c := w.anyCluster()
	if c == nil {
		return "", ""
	}
	g, o := w.anyCopy(c)
	if g == nil {
		return "", ""
	}
	h, space, times, what := w.hand(&c.Target, "flux"), o.GetNamespace(), 0, ""
	removes := w.Rand.IntN(4) == 0
	for range 4 + w.Rand.IntN(8) {
		if removes {
			if h.delete(g.kind, space, g.object, metav1.DeleteOptions{}) == nil {
				times++
			}
		} else if did := h.changed(g.kind, space, g.object, func(o *unstructured.Unstructured) bool { g.edits[0](w, o); return true }); did != "" {
			times++
			what = ", the last time: " + did
		}
		w.drain(time.Duration(1+w.Rand.IntN(3)) * time.Second)
	}
	if times == 0 {
		return "", ""
	}
	return "flux", fmt.Sprintf("%s %s on cluster %s %d times within some seconds%s", pickBy(removes, "deletes", "edits"), named(g.kind, space, g.object),
		c.Name, times, what)
}

func (w *World) deleteCopy() (actor, text string) {
	c := w.anyCluster()
	if c == nil {
		return "", ""
	}
	g, o := w.anyCopy(c)
	if g == nil {
		return "", ""
	}
	how := pick(w, propagations)
	if w.hand(&c.Target, "carol").delete(g.kind, o.GetNamespace(), g.object, metav1.DeleteOptions{PropagationPolicy: &how}) != nil {
		return "", ""
	}
	return "carol", fmt.Sprintf("deletes %s on cluster %s%s", named(g.kind, o.GetNamespace(), g.object), c.Name, backgroundWord[how])
}

// takeCopy takes over a copy, as some tools on clusters do: it takes the ownership of fields, or removes Refract's
// labels and annotations.
func (w *World) takeCopy() (actor, text string) {
	c := w.anyCluster()
	if c == nil {
		return "", ""
	}
	g, o := w.anyCopy(c)
	if g == nil {
		return "", ""
	}
	what := fmt.Sprintf("%s on cluster %s", named(g.kind, o.GetNamespace(), g.object), c.Name)
	if n := w.Rand.IntN(8); n < 6 {
		change := func(o *unstructured.Unstructured) {
			if n != 1 {
				annotate(o, refractv1alpha1.SourceAnnotation, "")
			}
			if n != 2 {
				label(o, corev1alpha1.ManagedLabel, "")
			}
			if n == 3 {
				annotate(o, refractv1alpha1.AppliedAnnotation, "")
			}
		}
		if w.hand(&c.Target, "carol").edit(g.kind, o.GetNamespace(), g.object, change) != nil {
			return "", ""
		}
		which := map[int]string{1: "the label kubeadmiral.io/managed", 2: "the annotation refract.dev/source", 3: "all marks of a copy"}[n]
		if which == "" {
			which = "the marks of a copy"
		}
		return "carol", "takes " + which + " off " + what
	}
	applied := object(g.kind, o.GetNamespace(), g.object, g.fields(w))
	now, err := w.hand(&c.Target, "argocd").client.Apply(applied, true)
	if err != nil {
		return "", ""
	}
	return "argocd", "applies " + what + ", and forces conflicts: " + difference(o, now)
}

// createForeign creates an object on a cluster whose name may also exist on the hub.
func (w *World) createForeign() (actor, text string) {
	c := w.anyCluster()
	if c == nil {
		return "", ""
	}
	h := w.hand(&c.Target, "carol")
	_, space := w.tenant()
	g, _ := w.there(h, space, false)
	if g == nil {
		return "", ""
	}
	if h.get(kindNamespace, "", space) == nil && h.create(object(kindNamespace, "", space, nil)) != nil {
		return "", ""
	}
	if h.create(object(g.kind, space, g.object, g.fields(w))) != nil {
		return "", ""
	}
	return "carol", fmt.Sprintf("creates %s on cluster %s by hand", named(g.kind, space, g.object), c.Name)
}

const holdFinalizer = "example.com/hold"

// holdCopy adds a finalizer to an object of a cluster, or removes it.
func (w *World) holdCopy() (actor, text string) {
	c := w.anyCluster()
	if c == nil {
		return "", ""
	}
	h := w.hand(&c.Target, "carol")
	for _, g := range goods {
		for _, o := range h.all(g.kind, "") {
			if slices.Contains(o.GetFinalizers(), holdFinalizer) && dropFinalizer(h, g.kind, o, holdFinalizer) == nil {
				return "carol", fmt.Sprintf("takes the finalizer %s off %s on cluster %s", holdFinalizer, named(g.kind, o.GetNamespace(), o.GetName()), c.Name)
			}
		}
	}
	g, o := w.anyCopy(c)
	if g == nil || o.GetDeletionTimestamp() != nil || h.edit(g.kind, o.GetNamespace(), g.object, func(o *unstructured.Unstructured) {
		o.SetFinalizers(append(o.GetFinalizers(), holdFinalizer))
	}) != nil {
		return "", ""
	}
	return "carol", fmt.Sprintf("puts the finalizer %s on %s on cluster %s", holdFinalizer, named(g.kind, o.GetNamespace(), g.object), c.Name)
}

func (w *World) deleteMemberSpace() (actor, text string) {
	c := w.anyCluster()
	_, space := w.tenant()
	if c == nil || w.hand(&c.Target, "carol").delete(kindNamespace, "", space, metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return "carol", "deletes Namespace " + space + " on cluster " + c.Name
}

// cure ends the first n faults of types on a cluster.
func (w *World) cure(c *Cluster, n int) {
	for _, a := range c.Lab.Ailments[:n] {
		if a.malady.name == rightToList {
			w.listable = w.Elapsed()
		}
	}
	c.Lab.Ailments = c.Lab.Ailments[n:]
}

// changeLab changes the behavior of a cluster.
func (w *World) changeLab() (actor, text string) {
	c := pick(w, w.Clusters)
	lab := &c.Lab
	switch w.Rand.IntN(8) {
	case 0, 1, 2:
		a := ailment{pick(w, []kind{kindConfigMap, kindDeployment, kindSecret, kindWidget, kindJob, kindClaim, kindService, kindAccount}),
			&maladies[w.Rand.IntN(len(maladies))]}
		if slices.Contains(lab.Ailments, a) || len(lab.Ailments) > 1 {
			return "", ""
		}
		lab.Ailments = append(lab.Ailments, a)
		return fault, "on cluster " + c.Name + " " + fmt.Sprintf(a.malady.tells, a.kind)
	case 3, 4:
		if len(lab.Ailments) == 0 {
			return "", ""
		}
		a := lab.Ailments[0]
		w.cure(c, 1)
		return fault, "on cluster " + c.Name + " " + fmt.Sprintf(a.malady.ends, a.kind)
	case 5:
		lab.Crashes = !lab.Crashes
		return c.Name + "'s nodes", pickBy(lab.Crashes, "fail: pods are not ready", "work again")
	case 6:
		lab.Claims = (lab.Claims + 1) % 3 //nolint:mnd // 0 to 2.
		if lab.Claims == 0 {
			return c.Name + "'s admin", "removes the quota of PersistentVolumeClaims"
		}
		return c.Name + "'s admin", fmt.Sprintf("sets the quota of PersistentVolumeClaims to %d in a namespace", lab.Claims)
	default:
		lab.Load = int64(1 + w.Rand.IntN(8))
		return c.Name + "'s load", fmt.Sprintf("changes: autoscalers want %d replicas", lab.Load)
	}
}

func pickBy(yes bool, one, other string) string {
	if yes {
		return one
	}
	return other
}

// changeMemberTypes changes the types that a cluster serves.
func (w *World) changeMemberTypes() (actor, text string) {
	c := w.anyCluster()
	if c == nil {
		return "", ""
	}
	if w.Rand.IntN(4) == 0 {
		c.Lab.Autoscaling = !c.Lab.Autoscaling
		c.Server.SetTypes(w.typesOf(c))
		return c.Name + "'s admin", pickBy(c.Lab.Autoscaling, "has the cluster serve the group autoscaling again",
			"has the cluster serve the group autoscaling no more")
	}
	c.Lab.Widgets = (c.Lab.Widgets + 1 + w.Rand.IntN(widgetVersions)) % (widgetVersions + 1)
	c.Server.SetTypes(w.typesOf(c))
	switch c.Lab.Widgets {
	case 0:
		return c.Name + "'s admin", "deletes the CustomResourceDefinition of Widgets, and with it all of them"
	case 1:
		return c.Name + "'s admin", "has the CustomResourceDefinition of Widgets serve version v1 alone"
	default:
		return c.Name + "'s admin", "has the CustomResourceDefinition of Widgets serve the versions v1 and v2"
	}
}

// mend ends the faults that people caused, and continues unfinished commands of the operator. It is called repeatedly
// until the world is at rest, because the next part of a command may have to wait for Refract's reaction.
func (w *World) mend() {
	w.people.strict, w.people.mending, w.people.unlisted = allows, true, kind{}
	for _, c := range w.Clusters {
		w.cure(c, len(c.Lab.Ailments))
		c.Lab.Crashes, c.Lab.Claims, c.Lab.front = false, 0, nil
		h := w.hand(&c.Target, "carol")
		for _, g := range goods {
			for _, o := range slices.Clone(h.all(g.kind, "")) {
				if slices.Contains(o.GetFinalizers(), holdFinalizer) {
					_ = dropFinalizer(h, g.kind, o, holdFinalizer) // The object may no longer exist.
				}
			}
		}
	}
	for w.holdRevision() {
	}
	for _, act := range []func() (actor, text string){w.repairCredentials, w.finishRename, w.finishUnjoin, w.removeStray} {
		if actor, text := act(); text != "" {
			w.Journal.add(w, actor, text)
		}
	}
}

// finishUnjoin performs the next part of refract unjoin: it approves the deletions on a leaving cluster.
func (w *World) finishUnjoin() (actor, text string) {
	for _, fc := range w.members() {
		if fc.DeletionTimestamp != nil && fc.Status.DeletionsHeld != nil {
			if actor, text := w.approveDeletionsOn(fc, w.people.leaving[fc.Name]); text != "" {
				return actor, text
			}
		}
	}
	return "", ""
}
