package simulate

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
)

// rotateToken replaces the token of a cluster. It writes the new token to the Secrets of the cluster's names at once or
// later.
func (w *World) rotateToken() (actor, text string) {
	c := pick(w, w.Clusters)
	names := w.namesOf(c)
	if len(names) == 0 {
		return "", ""
	}
	if c.Lab.tokens.certificate != nil {
		return "", "" // Certificates are not visible in requests.
	}
	w.newToken(c)
	if w.Rand.IntN(3) == 0 {
		return "operator of " + c.Name, "revokes the token of Refract on cluster " + c.Name
	}
	w.writeCredentials(c)
	return operator, "rotates the token for cluster " + c.Name
}

// writeCredentials writes the accepted credentials of a cluster to the Secrets of its names.
func (w *World) writeCredentials(c *Cluster) bool {
	h, done := w.hand(w.Hub, operator), false
	if t := &c.Lab.tokens; t.certificate == nil && !t.accept("Bearer "+t.last, time.Now().Add(c.Skew)) { // The token has expired without a renewal.
		w.newToken(c)
	}
	for _, fc := range w.namesOf(c) {
		name := fc.Spec.SecretRef.Name
		data := c.credentials(name)
		o := h.get(kindSecret, systemNamespace, name)
		if servedAs, _, err := member.OtherName(context.Background(), w.script(), fc); o == nil && (err != nil || servedAs != "") {
			continue // A name that was replaced has no Secret any more.
		}
		if o == nil {
			secret := object(kindSecret, systemNamespace, name, map[string]any{"data": data})
			secret.SetAnnotations(map[string]string{refractv1alpha1.EndpointAnnotation: c.endpoint()})
			done = h.create(secret) == nil || done
			continue
		}
		if string(encoded(o.Object["data"])) == string(encoded(data)) && o.GetAnnotations()[refractv1alpha1.EndpointAnnotation] == c.endpoint() {
			continue
		}
		done = h.edit(kindSecret, systemNamespace, name, func(o *unstructured.Unstructured) {
			o.Object["data"] = data
			annotate(o, refractv1alpha1.EndpointAnnotation, c.endpoint())
		}) == nil || done
	}
	return done
}

// breakCredentials damages the credentials or the address of a cluster.
func (w *World) breakCredentials() (actor, text string) {
	fc := w.anyMember()
	if fc == nil || w.clusterAt(fc) == nil {
		return "", ""
	}
	h, name := w.hand(w.Hub, operator), fc.Spec.SecretRef.Name
	var err error
	data := func(key, value string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			o.Object["data"] = map[string]any{key: base64.StdEncoding.EncodeToString([]byte(value))}
		}
	}
	switch w.Rand.IntN(9) {
	case 8:
		err = h.edit(kindRole, systemNamespace, member.PermitRole, func(o *unstructured.Unstructured) { o.Object["rules"] = []any{} })
		text = "resets Role " + member.PermitRole + " on the hub: Refract may read the credentials of no cluster anew"
	case 4:
		err = h.edit(kindSecret, systemNamespace, name, data(corev1alpha1.SecretKubeconfig, "apiVersion: v1\nkind: Config\n"))
		text = "writes a kubeconfig without a cluster into the Secret of cluster " + fc.Name
	case 5:
		err = h.edit(kindSecret, systemNamespace, name, data(corev1alpha1.SecretKubeconfig, programKubeconfig))
		text = "writes a kubeconfig that runs a program into the Secret of cluster " + fc.Name
	case 6:
		err = h.edit(kindSecret, systemNamespace, name, data(corev1alpha1.SecretClientKey, "no key"))
		text = "writes a key without its certificate into the Secret of cluster " + fc.Name
	case 7:
		err = h.edit(kindCluster, "", fc.Name, func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, true, "spec", "insecure") // The object has a spec.
		})
		text = "sets spec.insecure of cluster " + fc.Name
	case 0:
		err = h.delete(kindSecret, systemNamespace, name, metav1.DeleteOptions{})
		text = "deletes the Secret of cluster " + fc.Name
	case 1:
		err = h.edit(kindCluster, "", fc.Name, func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "missing", "spec", "secretRef", "name") // The field exists.
		})
		text = "has cluster " + fc.Name + " name a Secret that does not exist"
	case 2:
		err = h.edit(kindSecret, systemNamespace, name, func(o *unstructured.Unstructured) {
			o.Object["data"] = map[string]any{corev1alpha1.SecretServiceAccountToken: base64.StdEncoding.EncodeToString([]byte("wrong"))}
		})
		text = "writes a wrong token into the Secret of cluster " + fc.Name
	default:
		err = h.edit(kindSecret, systemNamespace, name, func(o *unstructured.Unstructured) {
			annotate(o, refractv1alpha1.EndpointAnnotation, "https://elsewhere.sim"+apiPort)
		})
		text = "has the Secret of cluster " + fc.Name + " say another API server than its FederatedCluster"
	}
	if err != nil {
		return "", ""
	}
	return operator, text
}

// programKubeconfig is a kubeconfig that runs a program. Refract must reject it.
const programKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: it, cluster: {server: "https://eu-1.sim:6443"}}]
users: [{name: it, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}}}]
contexts: [{name: it, context: {cluster: it, user: it}}]
current-context: it
`

// repairCredentials writes valid credentials for all clusters.
func (w *World) repairCredentials() (actor, text string) {
	var repaired []string
	h := w.hand(w.Hub, operator)
	for _, fc := range w.members() {
		if fc.Spec.Insecure && h.edit(kindCluster, "", fc.Name, func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "spec", "insecure")
		}) == nil {
			repaired = append(repaired, fc.Name)
		}
		if fc.Spec.SecretRef.Name == "missing" && h.edit(kindCluster, "", fc.Name, func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, fc.Name, "spec", "secretRef", "name") // The field exists.
		}) == nil {
			repaired = append(repaired, fc.Name)
		}
	}
	for _, c := range w.Clusters {
		if w.writeCredentials(c) && !slices.Contains(repaired, c.Name) {
			repaired = append(repaired, c.Name)
		}
	}
	role := h.get(kindRole, systemNamespace, member.PermitRole)
	if member.PermitAll(context.Background(), w.script(), systemNamespace) == nil {
		if now := h.get(kindRole, systemNamespace, member.PermitRole); role != nil && now.GetResourceVersion() != role.GetResourceVersion() {
			repaired = append(repaired, "Role "+member.PermitRole)
		}
	}
	if repaired == nil {
		return "", ""
	}
	return operator, "repairs the credentials for " + list(repaired)
}

// changeHubRight revokes Refract's right to list and watch a type on the hub, or grants it again.
func (w *World) changeHubRight() (actor, text string) {
	if k := w.people.unlisted; k.name != "" {
		w.people.unlisted = kind{}
		return operator, fmt.Sprintf("lets Refract list and watch %ss on the hub again", k)
	}
	w.people.unlisted = pick(w, []kind{kindWidget, kindCron, kindService, kindJob})
	return operator, fmt.Sprintf("takes the right to list and watch %ss on the hub from Refract", w.people.unlisted)
}
