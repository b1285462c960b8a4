package member

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// standing is what a FederatedCluster may do as one of the names of a cluster.
type standing int

const (
	// unclaimed: the status does not record a cluster yet.
	unclaimed standing = iota
	// choosing: the status records a cluster, and the name has no rank yet.
	choosing
	// waiting: another name of the cluster chooses its rank, which may be lower; or this name takes the place of
	// another one and is not assigned to the same replica yet.
	waiting
	// inService: copies are written and deleted through this name.
	inService
	// duplicate: another name is served.
	duplicate
	// renamed: another name has taken the place of this one.
	renamed
)

// decision is a standing and the other names that are its reason.
type decision struct {
	standing

	other  string   // The name that is served, if this one is a duplicate or renamed.
	former []string // The names whose place this one has taken, if it is served.
}

// stand returns the standing of a FederatedCluster among all FederatedClusters of the hub. It is a function of what
// these record, and needs neither a clock nor an answer of a cluster.
//
// Names choose their ranks as customers of Lamport's bakery draw numbers. The status of a name records the UID of the
// cluster first. Then the name takes a rank above all ranks that it sees ([rankOf]). It is served when it sees its own
// rank and no other name of the cluster that has a lower one or is still to choose. All FederatedClusters that a
// replica sees come from one watch, so that a replica which sees a rank sees all that was written before.
// A name that records the UID later therefore gets a higher rank, or is seen to choose. Hence no two names are served at
// once, and a name which is served stays so: no member can take the place of another one by claiming its UID.
//
// One name takes the place of another on request only: its annotation names the other one, and its rank is higher.
func stand(name string, all []corev1alpha1.FederatedCluster) decision {
	at := slices.IndexFunc(all, func(fc corev1alpha1.FederatedCluster) bool { return fc.Name == name })
	if at < 0 || all[at].Status.ClusterUID == "" {
		return decision{standing: unclaimed}
	}
	own := &all[at]
	if own.Status.ClusterClaim == 0 {
		return decision{standing: choosing}
	}
	names := namesOf(own.Status.ClusterUID, all)
	if names[0].Status.ClusterClaim == 0 {
		return decision{standing: waiting, other: names[0].Name}
	}
	chain := succession(names)
	last := chain[len(chain)-1]
	position := slices.Index(chain, own)
	switch {
	case own == last:
		d := decision{standing: inService}
		for _, fc := range chain[:position] {
			d.former = append(d.former, fc.Name)
		}
		if gone := replaces(own); gone != "" && !slices.ContainsFunc(all, func(fc corev1alpha1.FederatedCluster) bool { return fc.Name == gone }) {
			d.former = append(d.former, gone)
		}
		return d
	case position >= 0:
		return decision{standing: renamed, other: last.Name}
	case replaces(own) == last.Name && shardOf(own) != shardOf(last):
		return decision{standing: waiting, other: last.Name}
	default:
		return decision{standing: duplicate, other: last.Name}
	}
}

// namesOf returns the FederatedClusters that record the UID, by rank; first those that have none. It points into all.
func namesOf(uid types.UID, all []corev1alpha1.FederatedCluster) []*corev1alpha1.FederatedCluster {
	var names []*corev1alpha1.FederatedCluster
	for i := range all {
		if all[i].Status.ClusterUID == uid {
			names = append(names, &all[i])
		}
	}
	slices.SortFunc(names, func(a, b *corev1alpha1.FederatedCluster) int {
		return cmp.Or(cmp.Compare(a.Status.ClusterClaim, b.Status.ClusterClaim), byAge(a, b))
	})
	return names
}

// succession returns the name with the lowest rank, the one that took its place, and so on. The last one is served.
func succession(names []*corev1alpha1.FederatedCluster) []*corev1alpha1.FederatedCluster {
	chain := names[:1:1]
	for i := 1; i < len(names); i++ { // Each successor has a higher rank, so one pass finds all.
		if last := chain[len(chain)-1]; replaces(names[i]) == last.Name && shardOf(names[i]) == shardOf(last) {
			chain = append(chain, names[i])
		}
	}
	return chain
}

// byAge orders FederatedClusters by the time of their creation, then by name.
func byAge(a, b *corev1alpha1.FederatedCluster) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// rankOf returns the rank that a name takes which records a cluster and has none. It is 0 while the name must wait for an
// older one that chooses, too.
func rankOf(name string, all []corev1alpha1.FederatedCluster) int64 {
	at := slices.IndexFunc(all, func(fc corev1alpha1.FederatedCluster) bool { return fc.Name == name })
	if at < 0 {
		return 0
	}
	own := &all[at]
	names := namesOf(own.Status.ClusterUID, all)
	for _, fc := range names {
		if fc.Status.ClusterClaim == 0 && byAge(fc, own) < 0 {
			return 0
		}
	}
	return names[len(names)-1].Status.ClusterClaim + 1
}

// advance takes the next step of a name whose cluster has this UID, in its status, and reports whether there was one: all are the
// FederatedClusters with fc as it is. Settled reports that the name needs no step, as it is known which name is served. Neither means
// that other names have to do something first. Patience is whether the name still waits for older ones; see [unrecorded].
func advance(fc *corev1alpha1.FederatedCluster, uid types.UID, all []corev1alpha1.FederatedCluster, patience bool) (written, settled bool) {
	is := stand(fc.Name, all)
	switch {
	case fc.Status.ClusterUID != uid:
		fc.Status.ClusterUID, fc.Status.ClusterClaim = uid, 0
		for i := range all {
			if old := &all[i]; old.Name == replaces(fc) && old.Status.ClusterUID == uid {
				fc.Status.APIResourceTypes = slices.Clone(old.Status.APIResourceTypes) // Its copies are in the versions that it serves.
			}
		}
		return true, false
	case is.standing == choosing:
		if patience && unrecorded(fc, all) != "" {
			return false, false
		}
		fc.Status.ClusterClaim = rankOf(fc.Name, all)
		return fc.Status.ClusterClaim > 0, false
	case is.standing == duplicate && precedes(uid, all) == fc.Name:
		fc.Status.ClusterClaim = rankOf(fc.Name, all)
		return true, false
	default:
		return false, is.standing == inService || is.standing == duplicate || is.standing == renamed
	}
}

// precedes returns a name whose rank is lower than that of the one that is served, and which is not one of those whose place
// that one has taken: it would be served when these are gone. Such a name raises its rank, and they do not go before.
func precedes(uid types.UID, all []corev1alpha1.FederatedCluster) string {
	names := namesOf(uid, all)
	if len(names) == 0 {
		return ""
	}
	chain := succession(names)
	for _, fc := range names[:slices.Index(names, chain[len(chain)-1])] {
		if !slices.Contains(chain, fc) {
			return fc.Name
		}
	}
	return ""
}

// unrecorded returns an older name that was served before names recorded their clusters, and is to record its own soon. If
// two names were in use for a cluster, the older one is served in this way.
func unrecorded(own *corev1alpha1.FederatedCluster, all []corev1alpha1.FederatedCluster) (older string) {
	if !own.Status.JoinPerformed {
		return ""
	}
	for i := range all {
		fc := &all[i]
		if fc.Status.ClusterUID == "" && fc.Status.JoinPerformed && isTrue(&fc.Status, corev1alpha1.ClusterReady) && byAge(fc, own) < 0 {
			return fc.Name
		}
	}
	return ""
}

// contested returns another name of the cluster, which is not to leave, or one that may turn out to be such: it is not
// known yet which cluster it is of, and it claims the place of the first or has the same address. While there is one, nothing
// is deleted because the first name leaves.
func contested(own *corev1alpha1.FederatedCluster, all []corev1alpha1.FederatedCluster) (other string) {
	for i := range all {
		fc := &all[i]
		if fc.Name == own.Name || !fc.DeletionTimestamp.IsZero() {
			continue
		}
		known := fc.Status.ClusterUID != ""
		switch {
		case known && fc.Status.ClusterUID == own.Status.ClusterUID,
			!known && replaces(fc) == own.Name,
			!known && own.Status.ClusterUID != "" && fc.Spec.APIEndpoint == own.Spec.APIEndpoint:
			return fc.Name
		}
	}
	return ""
}

// replaces returns the name whose place a FederatedCluster is to take; empty if it is none.
func replaces(fc *corev1alpha1.FederatedCluster) string {
	return fc.Annotations[refractv1alpha1.ReplacesAnnotation]
}

// shardOf returns the name by which a cluster is assigned to a replica.
func shardOf(fc *corev1alpha1.FederatedCluster) string {
	return cmp.Or(fc.Annotations[refractv1alpha1.ShardAnnotation], fc.Name)
}

// duplicateMessage says what a duplicate is, and what to do about it.
func duplicateMessage(name, other string) string {
	const format = "this is the cluster that is served as %s: nothing is written to it, or deleted from it, through this name. " +
		"`refract join %s --replaces %s` has this name take the place of the other one; `refract unjoin %s --force` removes this name only"
	return fmt.Sprintf(format, other, name, other, name)
}

// renamedMessage says what became of a name.
func renamedMessage(name, other string) string {
	const format = "the cluster is served as %s: its copies stay as they are. `refract join %s --replaces %s` completes this, or delete this FederatedCluster"
	return fmt.Sprintf(format, other, other, name)
}
