package propagation

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	decision "refract.dev/fleet/decide"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/fleet/policy/reference"
)

// on returns the clusters of the leaders of an object, which are the objects that it travels with. was is the former
// placement of the object: it is included completely if the placement of a leader is unknown.
func (l *followed) on(was []placement.Target) []string {
	names := slices.Clone(l.clusters)
	for i := range was {
		if name := was[i].Cluster; l.blocked || len(l.unknown) > 0 || l.failing[name] {
			names = append(names, name)
		}
	}
	return names
}

// findFollowers finds the followers of the object on its own clusters: on each cluster, the objects that the pod
// template rendered for this cluster refers to, and everywhere the objects that the annotation names.
func (p *desiredState) findFollowers(obj *unstructured.Unstructured, d *decision.Desired, rendered []arrival, s *inputs) {
	var parties [][]string // The clusters of each rendered object, and then all clusters.
	for _, a := range rendered {
		clusters := slices.DeleteFunc(slices.Clone(a.clusters), func(cluster string) bool {
			_, its := placement.Find(d.Own, cluster)
			return !its
		})
		parties = append(parties, clusters)
	}
	var all []string
	for i := range d.Own {
		all = append(all, d.Own[i].Cluster)
	}
	parties = append(parties, all)
	follows, withheld := travellers{}, travellers{}
	add := func(to travellers, resource schema.GroupResource, name string, party int) {
		key := Key{GroupResource: resource, NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}
		with := to[key]
		switch {
		case len(parties[party]) == 0:
		case len(with) == 0 && native(obj, resource, name) != "":
		default:
			to[key] = append(with, party)
		}
	}
	told := map[reference.Reference]bool{}
	for i, a := range rendered {
		for _, ref := range podtemplate.References(a.object) {
			to, id := follows, reference.Reference{Kind: ref.Kind, Name: ref.Name}
			if by, without := a.unasked[id]; without {
				to = withheld
				if !told[id] {
					told[id] = true
					p.warnings = append(p.warnings, fmt.Sprintf("%s %s, which %s adds, does not travel with the object to clusters without it: %v: %s",
						ref.Kind, ref.Name, anyGeneration(by), errUnasked, approve))
				}
			}
			add(to, schema.GroupResource{Group: ref.Group, Resource: ref.Resource}, ref.Name, i)
		}
	}
	for _, c := range d.Companions {
		add(follows, c.Resource, c.Name, len(rendered))
	}
	p.followers, p.withheld = follows.clusters(parties), withheld.clusters(parties)
	p.warnUnlisted(s)
}

// mostUnlisted is the maximum number of objects of a type that a warning about a missing right names.
const mostUnlisted = 5

// warnUnlisted warns of objects that do not travel with the object because Refract may not list their type.
func (p *desiredState) warnUnlisted(s *inputs) {
	if s.unlisted == nil {
		return
	}
	names := map[string][]string{}
	for key := range p.followers {
		if s.unlisted(key.GroupResource) {
			names[key.GroupResource.String()] = append(names[key.GroupResource.String()], key.Name)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(names)) {
		all := names[resource]
		slices.Sort(all)
		text := strings.Join(all[:min(len(all), mostUnlisted)], ", ")
		if more := len(all) - mostUnlisted; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		p.warnings = append(p.warnings, fmt.Sprintf("%s %s does not travel with the object: Refract has no right to list %s on the hub; "+
			"refract install --propagate, or propagation.types of the chart, grants it", resource, text, resource))
	}
}

// native returns the reason for which an object of this name is not propagated from the namespace of the object beside:
// each cluster creates it itself. It is empty for all other objects.
func native(beside *unstructured.Unstructured, resource schema.GroupResource, name string) string {
	return placement.Native(resource, &metav1.ObjectMeta{Namespace: beside.GetNamespace(), Name: name})
}

// travellers maps each follower to the indexes of its parties. A party is a list of clusters.
type travellers map[Key][]int

// clusters returns the clusters of each follower. Followers with the same parties share one list: an object may refer
// to thousands of followers on a thousand clusters.
func (t travellers) clusters(parties [][]string) map[Key][]string {
	if len(t) == 0 {
		return nil
	}
	to := make(map[Key][]string, len(t))
	shared := map[string][]string{}
	var id []byte
	for key, with := range t {
		id = id[:0]
		for _, party := range with {
			id = binary.AppendUvarint(id, uint64(party))
		}
		list, known := shared[string(id)]
		if !known {
			for _, party := range with {
				list = append(list, parties[party]...)
			}
			slices.Sort(list)
			list = slices.Compact(list)
			shared[string(id)] = list
		}
		to[key] = list
	}
	return to
}

// travelling returns the followers of the object with their clusters. The object may fail to render for a cluster,
// because a revision is lost or an override fails. Then its references on this cluster are unknown, and its former
// followers stay there. Otherwise decisions would alternate forever between the references of the newest content and
// none. before is not modified.
func (p *desiredState) travelling(before map[Key][]string) map[Key][]string {
	if len(before) == 0 || !p.failsSomewhere() {
		return p.followers
	}
	type lists struct{ now, before *string } // The first element identifies a list: most followers share one, see travellers.clusters.
	first := func(list []string) *string {
		if len(list) == 0 {
			return nil
		}
		return &list[0]
	}
	to, shared := maps.Clone(p.followers), map[lists][]string{}
	for key, was := range before {
		now := p.followers[key]
		of := lists{first(now), first(was)}
		all, known := shared[of]
		if !known {
			all = slices.DeleteFunc(slices.Clone(was), func(cluster string) bool { return !p.targets[cluster].fails() })
			all = append(all, now...)
			slices.Sort(all)
			all = slices.Compact(all)
			shared[of] = all
		}
		if len(all) > 0 {
			if to == nil {
				to = map[Key][]string{}
			}
			to[key] = all
		}
	}
	return to
}

// failsSomewhere reports whether the object cannot be rendered for one of its clusters.
func (p *desiredState) failsSomewhere() bool {
	for _, t := range p.targets {
		if t.fails() {
			return true
		}
	}
	return false
}

// followed returns the leaders of the object for the report.
func (p *desiredState) followed() (all []refractv1alpha1.FollowedObject) {
	for _, leader := range p.follows[:min(len(p.follows), mostFollowed)] {
		all = append(all, refractv1alpha1.FollowedObject{Resource: leader.GroupResource.String(), Name: leader.Name})
	}
	return all
}
