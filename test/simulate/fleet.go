package simulate

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/test/apiserver"
)

type statusError = apierrors.StatusError

func forbidden(write apiserver.Write, why string) *statusError {
	return apierrors.NewForbidden(schema.GroupResource{Group: write.GVR.Group, Resource: write.GVR.Resource}, write.Name, fmt.Errorf("%s", why))
}

// isRefract reports whether a user is a process of Refract.
func isRefract(user string) bool {
	return len(user) > len("refract-") && user[:len("refract-")] == "refract-"
}

func mustDecode(from map[string]any, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(from, into)
}

// operatorOperations returns the operations of the hub's operator.
func operatorOperations() []operation {
	return []operation{
		{"approve deletions", 25, (*World).approveDeletions},
		{"label cluster", 12, (*World).labelCluster},
		{"taint cluster", 8, (*World).taintCluster},
		{"unjoin", 5, (*World).unjoin},
		{"finish unjoin", 10, (*World).finishUnjoin},
		{"unjoin --force", 3, (*World).unjoinByForce},
		{"join", 14, (*World).joinAgain},
		{"second name", 3, (*World).secondName},
		{"stray cluster", 3, (*World).applyStray},
		{"no stray cluster", 8, (*World).removeStray},
		{"delete cluster", 3, (*World).deleteCluster},
		{"rename", 8, (*World).renameCluster},
		{"finish rename", 10, (*World).finishRename},
		{"rotate token", 5, (*World).rotateToken},
		{"break credentials", 3, (*World).breakCredentials},
		{"repair credentials", 8, (*World).repairCredentials},
		{"delete namespace", 4, (*World).deleteSpace},
		{"create namespace", 9, (*World).createMissingSpace},
		{"edit namespace", 6, (*World).editSpace},
		{"delete report", 3, (*World).deleteReport},
		{"delete revision", 3, (*World).deleteRevision},
		{"change key", 3, (*World).changeKey},
		{"refuse revisions", 4, (*World).refuseRevisions},
		{"hub type", 5, (*World).changeHubType},
		{"right on the hub", 5, (*World).changeHubRight},
		{"volume", 8, (*World).changeVolume},
		{"owner", 4, (*World).ownSomething},
	}
}

// members returns the FederatedClusters.
func (w *World) members() []*corev1alpha1.FederatedCluster {
	var all []*corev1alpha1.FederatedCluster
	for _, o := range w.Hub.Server.All(kindCluster.GroupVersionResource) {
		fc := &corev1alpha1.FederatedCluster{}
		if mustDecode(o.DeepCopy().Object, fc) == nil {
			all = append(all, fc)
		}
	}
	return all
}

// clusterAt returns the cluster at the address of a FederatedCluster, or nil for an unknown address.
func (w *World) clusterAt(fc *corev1alpha1.FederatedCluster) *Cluster {
	for _, c := range w.Clusters {
		if c.endpoint() == fc.Spec.APIEndpoint {
			return c
		}
	}
	return nil
}

// namesOf returns the FederatedClusters with the address of a cluster: the names under which it is a member.
func (w *World) namesOf(c *Cluster) (names []*corev1alpha1.FederatedCluster) {
	for _, fc := range w.members() {
		if w.clusterAt(fc) == c {
			names = append(names, fc)
		}
	}
	return names
}

func (w *World) approveDeletions() (actor, text string) {
	var waiting []*corev1alpha1.FederatedCluster
	for _, fc := range w.members() {
		if fc.Status.DeletionsHeld != nil {
			waiting = append(waiting, fc)
		}
	}
	fc := pick(w, waiting)
	if fc == nil {
		return "", ""
	}
	return w.approveDeletionsOn(fc, w.Rand.IntN(3) == 0 || w.people.leaving[fc.Name])
}

// approveDeletionsOn approves the deletions that wait on a cluster. If all is false, it excludes copies with data.
func (w *World) approveDeletionsOn(fc *corev1alpha1.FederatedCluster, all bool) (actor, text string) {
	held := fc.Status.DeletionsHeld
	token, which := held.Token, fmt.Sprintf("%d of %d copies", held.Copies, held.Of)
	if held.HoldData > 0 {
		which += fmt.Sprintf(", %d of them with data", held.HoldData)
	}
	if held.HoldData > 0 && !all {
		token, which = held.OthersToken, fmt.Sprintf("%d of %d copies, without those with data", held.Copies-held.HoldData, held.Of)
	}
	if token == "" || fc.Annotations[refractv1alpha1.ApproveAnnotation] == token {
		return "", ""
	}
	w.people.approvals = append(w.people.approvals, approval{kindCluster, "", fc.Name, refractv1alpha1.ApproveAnnotation, token})
	if member.Approve(context.Background(), w.script(), fc.Name, token) != nil {
		return "", ""
	}
	return operator, "approves the deletions that wait on cluster " + fc.Name + ": " + which
}

// anyMember returns a random FederatedCluster.
func (w *World) anyMember() *corev1alpha1.FederatedCluster { return pick(w, w.members()) }

func (w *World) labelCluster() (actor, text string) {
	fc := w.anyMember()
	if fc == nil {
		return "", ""
	}
	key, value := "tier", pick(w, []string{"prod", "prod", "test", ""})
	if w.Rand.IntN(3) == 0 {
		key, value = "region", pick(w, []string{"eu", "us", "ap", ""})
	}
	if fc.Labels[key] == value || w.hand(w.Hub, operator).edit(kindCluster, "", fc.Name, func(o *unstructured.Unstructured) { label(o, key, value) }) != nil {
		return "", ""
	}
	if value == "" {
		return operator, fmt.Sprintf("removes the label %s=%s from cluster %s", key, fc.Labels[key], fc.Name)
	}
	return operator, fmt.Sprintf("labels cluster %s: %s %s → %s", fc.Name, key, cmp.Or(fc.Labels[key], "none"), value)
}

func (w *World) taintCluster() (actor, text string) {
	fc := w.anyMember()
	if fc == nil {
		return "", ""
	}
	effect := pick(w, []string{"NoSchedule", "NoExecute", ""})
	if len(fc.Spec.Taints) > 0 {
		effect = ""
	} else if effect == "" {
		return "", ""
	}
	err := w.hand(w.Hub, operator).edit(kindCluster, "", fc.Name, func(o *unstructured.Unstructured) {
		spec, _ := o.Object["spec"].(map[string]any)
		delete(spec, "taints")
		if effect != "" {
			spec["taints"] = []any{map[string]any{"key": "maintenance", "effect": effect}}
		}
	})
	switch {
	case err != nil:
		return "", ""
	case effect == "":
		return operator, "removes the taint from cluster " + fc.Name
	default:
		return operator, fmt.Sprintf("taints cluster %s with maintenance:%s", fc.Name, effect)
	}
}

// unjoin performs the first part of refract unjoin. The approvals that the command gives are a separate step.
func (w *World) unjoin() (actor, text string) {
	fc := w.anyMember()
	if fc == nil || fc.DeletionTimestamp != nil {
		return "", ""
	}
	ctx, c := context.Background(), w.script()
	if servedAs, second, err := member.OtherName(ctx, c, fc); err != nil || servedAs != "" || second != "" {
		return "", "" // The command refuses.
	}
	volumes := w.Rand.IntN(3) == 0
	if member.ReleaseKept(ctx, c, fc, !volumes) != nil || member.Leave(ctx, c, fc) != nil {
		return "", ""
	}
	how := " (volumes are left to the cluster)"
	if volumes {
		how = " --delete-volumes"
	}
	if w.Rand.IntN(3) > 0 {
		w.people.leaving[fc.Name] = volumes
		return operator, "runs refract unjoin " + fc.Name + how
	}
	return operator, "runs refract unjoin " + fc.Name + how + ", and interrupts it"
}

// unjoinByForce removes a cluster from the fleet and leaves its copies there.
func (w *World) unjoinByForce() (actor, text string) {
	fc := w.anyMember()
	if fc == nil {
		return "", ""
	}
	ctx, c := context.Background(), w.script()
	name := fc.Name
	if member.Release(ctx, c, fc) != nil {
		return "", ""
	}
	_, _ = member.Forget(ctx, c, systemNamespace, fc) // The Secret may stay.
	delete(w.people.leaving, name)
	return operator, "runs refract unjoin " + name + " --force: the copies stay on the cluster"
}

// joinAgain joins a cluster that is not a member.
func (w *World) joinAgain() (actor, text string) {
	for _, c := range w.Clusters {
		if len(w.namesOf(c)) > 0 || c.Down {
			continue
		}
		name := c.Name
		if w.Rand.IntN(4) == 0 {
			name = secondNames[c.Name]
		}
		if w.hand(w.Hub, operator).get(kindCluster, "", name) != nil || !w.join(c, name) {
			continue
		}
		delete(w.people.leaving, name)
		return operator, "runs refract join " + name + " for cluster " + c.Name
	}
	return "", ""
}

// secondName creates a second FederatedCluster for a cluster, as if a manifest was applied without refract join.
func (w *World) secondName() (actor, text string) {
	c := pick(w, w.Clusters)
	name := secondNames[c.Name]
	if len(w.namesOf(c)) != 1 || w.hand(w.Hub, operator).get(kindCluster, "", name) != nil || !w.join(c, name) {
		return "", ""
	}
	return operator, fmt.Sprintf("applies a FederatedCluster %s that leads to the same API server as %s", name, c.Name)
}

// strays are the addresses of FederatedClusters without a member, by name: results of copied or mistyped manifests.
//
//nolint:gochecknoglobals // It is a constant.
var strays = map[string]string{"self-1": "hub.sim" + apiPort, "no-1": "nowhere.sim" + apiPort}

// applyStray applies a FederatedCluster with the address of the hub itself, or with an address at which no API server
// answers. The FederatedCluster has the taint of new clusters.
func (w *World) applyStray() (actor, text string) {
	name := pick(w, []string{"self-1", "no-1"})
	endpoint := "https://" + strays[name]
	h := w.hand(w.Hub, operator)
	secret := object(kindSecret, systemNamespace, name, map[string]any{"data": map[string]any{
		corev1alpha1.SecretServiceAccountToken: base64.StdEncoding.EncodeToString([]byte("token-" + name)),
	}})
	secret.SetAnnotations(map[string]string{refractv1alpha1.EndpointAnnotation: endpoint})
	if h.get(kindCluster, "", name) != nil || h.get(kindSecret, systemNamespace, name) == nil && h.create(secret) != nil {
		return "", ""
	}
	if member.Permit(context.Background(), w.script(), systemNamespace, name) != nil || h.create(object(kindCluster, "", name, map[string]any{"spec": map[string]any{
		"apiEndpoint": endpoint, "useServiceAccount": true, "secretRef": map[string]any{"name": name},
		"taints": []any{map[string]any{"key": "new", "effect": "NoExecute"}},
	}})) != nil {
		return "", ""
	}
	if name == "no-1" {
		return operator, "applies a FederatedCluster no-1 with an address where nothing answers"
	}
	return operator, "applies a FederatedCluster self-1 with the address of the hub itself"
}

// removeStray deletes a stray FederatedCluster.
func (w *World) removeStray() (actor, text string) {
	h := w.hand(w.Hub, operator)
	for _, fc := range w.members() {
		if strays[fc.Name] == "" || fc.DeletionTimestamp != nil || h.delete(kindCluster, "", fc.Name, metav1.DeleteOptions{}) != nil {
			continue
		}
		return operator, "deletes FederatedCluster " + fc.Name
	}
	return "", ""
}

// deleteCluster deletes a FederatedCluster with kubectl, which checks nothing.
func (w *World) deleteCluster() (actor, text string) {
	fc := w.anyMember()
	if fc == nil || fc.DeletionTimestamp != nil || w.hand(w.Hub, operator).delete(kindCluster, "", fc.Name, metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return operator, "deletes FederatedCluster " + fc.Name + " with kubectl"
}

// renameCluster gives a member another name, like refract join NEW --replaces OLD.
func (w *World) renameCluster() (actor, text string) {
	fc := w.anyMember()
	if fc == nil || fc.DeletionTimestamp != nil {
		return "", ""
	}
	c := w.clusterAt(fc)
	if c == nil {
		return "", ""
	}
	name := secondNames[c.Name]
	if name == fc.Name {
		name = c.Name
	}
	if _, err := member.Replace(context.Background(), w.script(), systemNamespace, name, fc, nil, nil); err != nil {
		return "", ""
	}
	return operator, fmt.Sprintf("runs refract join %s --replaces %s", name, fc.Name)
}

// finishRename performs the second part of a rename after Refract uses the new name: it deletes the old one.
func (w *World) finishRename() (actor, text string) {
	ctx, c := context.Background(), w.script()
	for _, fc := range w.members() {
		servedAs, _, err := member.OtherName(ctx, c, fc)
		if err != nil || servedAs == "" || fc.DeletionTimestamp != nil && !w.people.mending {
			continue
		}
		if successor, err := member.Replaced(ctx, c, servedAs, fc.Name); err != nil || successor == nil {
			if w.people.mending || w.Rand.IntN(2) == 0 { // A second name, not a rename: the operator removes it.
				name := fc.Name
				if member.Release(ctx, c, fc) != nil {
					return "", ""
				}
				_, _ = member.Forget(ctx, c, systemNamespace, fc) // The Secret may stay.
				return operator, fmt.Sprintf("runs refract unjoin %s --force: it is another name of %s", name, servedAs)
			}
			continue
		}
		if fc.DeletionTimestamp != nil {
			continue
		}
		if _, err := member.Forget(ctx, c, systemNamespace, fc); err != nil || member.Leave(ctx, c, fc) != nil {
			return "", ""
		}
		return operator, fmt.Sprintf("sees that %s is served in place of %s, and deletes FederatedCluster %s", servedAs, fc.Name, fc.Name)
	}
	return "", ""
}
