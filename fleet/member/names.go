package member

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// standing is the state of a FederatedCluster as one of the names of a cluster.
type standing int

const (
	// unclaimed: the status does not record a cluster yet.
	unclaimed standing = iota
	// choosing: the status records a cluster, and the name has no rank yet.
	choosing
	// waiting: another name of the cluster is choosing its rank, which may be lower.
	waiting
	// inService: copies are written and deleted through this name.
	inService
	// duplicate: another name is served.
	duplicate
	// renamed: another name has replaced this one.
	renamed
)

// decision is a standing, with the other names that explain it.
type decision struct {
	standing

	other  string   // The served name, if this one is a duplicate or renamed.
	former []string // The names that this one has replaced, if it is served.
}

// stand returns the standing of a FederatedCluster among all FederatedClusters of the hub. The result depends only on
// these objects. It does not depend on a clock or an answer of a cluster.
//
// Names choose their ranks like customers of Lamport's bakery draw numbers. The status of a name records the UID of the
// cluster first. Then the name takes a rank above all ranks that it sees ([rankOf]). The name is served when it sees
// its own rank, and sees no other name of the cluster with a lower rank or without one. A replica sees all
// FederatedClusters in one watch, so a replica that sees a rank also sees all earlier writes. Therefore a name that
// records the UID later gets a higher rank, or the replica sees that it is still choosing. Hence two names are never
// served at the same time, and a served name stays served: no member can replace it by claiming its UID.
//
// A name replaces another name only on request: its annotation names the other one, and its rank is higher.
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
	default:
		return decision{standing: duplicate, other: last.Name}
	}
}

// namesOf returns the FederatedClusters that record the UID, by rank; those without a rank come first. The result
// points into all.
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

// succession returns the name with the lowest rank, the name that replaced it, and so on. The last one is served.
func succession(names []*corev1alpha1.FederatedCluster) []*corev1alpha1.FederatedCluster {
	chain := names[:1:1]
	for i := 1; i < len(names); i++ { // Each successor has a higher rank, so one pass finds all.
		if last := chain[len(chain)-1]; replaces(names[i]) == last.Name {
			chain = append(chain, names[i])
		}
	}
	return chain
}

// byAge orders FederatedClusters by the time of their creation, then by name.
func byAge(a, b *corev1alpha1.FederatedCluster) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// rankOf returns the rank for a name that records a cluster and has no rank yet; 0 while an older name must choose
// first.
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

// advance writes the next step of a name into the status of fc. The result written is true if there was a step. The
// result settled is true if no step is necessary, because the served name is known. If both are false, other names must
// take a step first. Uid is the UID of the cluster. All has the FederatedClusters, including the current fc. Patience
// says whether the name still waits for others; see [unrecorded] and [unasked].
func advance(fc *corev1alpha1.FederatedCluster, uid types.UID, all []corev1alpha1.FederatedCluster, patience bool) (written, settled bool) {
	is := stand(fc.Name, all)
	switch {
	case fc.Status.ClusterUID != uid:
		fc.Status.ClusterUID, fc.Status.ClusterClaim = uid, 0
		for i := range all {
			if old := &all[i]; old.Name == replaces(fc) && old.Status.ClusterUID == uid {
				fc.Status.APIResourceTypes = slices.Clone(old.Status.APIResourceTypes) // The replaced name has discovered them on the same cluster.
			}
		}
		return true, false
	case is.standing == choosing:
		if patience && (unrecorded(fc, all) != "" || unasked(fc, all) != "") {
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

// precedes returns a name that has a lower rank than the served name and that the served name has not replaced. If the
// replaced names were gone, this name would be served. So it must first raise its rank, and the replaced names stay
// until then.
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

// unrecorded returns an older name that an earlier version served without a recorded cluster, and that should record
// its cluster soon. If a cluster had two names in use, the older one is therefore served.
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

// rivals reports whether two names have one address and record two clusters. Either the address leads to two clusters,
// for example through a proxy that selects by credentials, or the cluster was rebuilt and only one of the names records
// the new UID.
func rivals(a, b *corev1alpha1.FederatedCluster) bool {
	return a.Status.ClusterUID != "" && b.Status.ClusterUID != "" && a.Status.ClusterUID != b.Status.ClusterUID && a.Spec.APIEndpoint == b.Spec.APIEndpoint
}

// unasked returns a name at the same address that is served as another cluster. If the cluster was rebuilt, copies are
// written through that name until its replica identifies the cluster again. The name need not be Ready, because copies
// are written before the status reports that.
func unasked(own *corev1alpha1.FederatedCluster, all []corev1alpha1.FederatedCluster) (other string) {
	for i := range all {
		if rivals(&all[i], own) && stand(all[i].Name, all).standing == inService {
			return all[i].Name
		}
	}
	return ""
}

// contested returns another name of the cluster that does not leave, or a name that may later prove to be one. While
// such a name exists, the removal of own deletes no copies.
func contested(own *corev1alpha1.FederatedCluster, all []corev1alpha1.FederatedCluster) (other string) {
	for i := range all {
		if placement.Contests(&all[i], own) {
			return all[i].Name
		}
	}
	return ""
}

// replaces returns the name that a FederatedCluster is to replace; "" if it replaces none.
func replaces(fc *corev1alpha1.FederatedCluster) string {
	return fc.Annotations[refractv1alpha1.ReplacesAnnotation]
}

// duplicateMessage describes a duplicate and its remedies.
func duplicateMessage(name, other string) string {
	const format = "this cluster is served as %s: Refract writes and deletes nothing through this name. " +
		"`refract join %s --replaces %s` replaces the other name by this one; `refract unjoin %s --force` removes this name only"
	return fmt.Sprintf(format, other, name, other, name)
}

// renamedMessage describes the state of a name that was replaced.
func renamedMessage(name, other string) string {
	const format = "the cluster is served as %s: its copies stay as they are. `refract join %s --replaces %s` completes this, or delete this FederatedCluster"
	return fmt.Sprintf(format, other, other, name)
}
