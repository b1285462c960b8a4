// Package reference finds the Secrets and ConfigMaps that objects refer to. Not every user may read these Secrets and
// ConfigMaps, and Refract propagates them with the referring object, or gives them to pods on the clusters. So Refract
// checks whether the user who adds a reference may read the referenced object. All these checks use this package, which
// has the only list of the places of such references.
package reference

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/injection/inject"
)

// Kinds of referenced objects.
const (
	Secret    = "Secret"
	ConfigMap = "ConfigMap"
	// Service stands for all Secrets and ConfigMaps that the annotations of the Service name now or later. A
	// ServiceInjectionPolicy can give them to its pods.
	Service = "Service"
)

// rootCA is a ConfigMap that exists in every namespace and is mounted in every pod.
const rootCA = "kube-root-ca.crt"

// Reference names an object in the namespace of the referring object.
type Reference struct {
	Kind string // One of the constants above.
	Name string // Never empty.
}

// Compare orders references by kind and name.
func Compare(a, b Reference) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// Of returns the references of an object, each once, ordered by [Compare]. They are the references in a pod template
// (see [podtemplate.References]), the items that the annotations of a Service inject, the items that a
// ServiceInjectionPolicy injects or takes over, the TLS Secrets of an Ingress, and the tokens and pull secrets of a
// ServiceAccount. Other objects have no references. Of does not modify obj, and keeps no part of it.
func Of(obj *unstructured.Unstructured) []Reference {
	return Added(nil, obj)
}

// Added returns the references of after that are not in before, or that show more of the object than in before, each
// once, ordered by [Compare]. The author of the change must be allowed to read them. Both arguments are versions of the
// same object; before may be nil for a new object.
//
// A pod template shows more if it used one key of a Secret, or only pulled images with it, and now uses all of it. In a
// Service, each new entry of the annotations counts, whatever earlier entries showed of the Secret. A
// ServiceInjectionPolicy counts if it gives out a Secret in another way than before, for instance to other pods, see
// [inject.HandsOut]. Added modifies neither argument.
func Added(before, after *unstructured.Unstructured) []Reference {
	if isPolicy(after) {
		return addedByPolicy(before, after)
	}
	was := map[use]bool{}
	if before != nil {
		for _, u := range named(before) {
			was[u] = true
		}
	}
	var out []Reference
	for _, u := range named(after) {
		if !was[u] && !was[use{u.Reference, podtemplate.All}] {
			out = append(out, u.Reference)
		}
	}
	return tidy(out)
}

// use is a reference, and the part of the referenced object that it shows. Different uses show different parts;
// [podtemplate.All] includes every part.
type use struct {
	Reference

	as string
}

// GivesOut reports whether the object gives its references to pods on a cluster, which may be pods of other owners. For
// such an object, it is not sufficient to stop the propagation of the referenced objects.
func GivesOut(obj *unstructured.Unstructured) bool {
	return isPolicy(obj) || isKind(obj, "", "Service")
}

func isPolicy(obj *unstructured.Unstructured) bool {
	return isKind(obj, refractv1beta1.GroupVersion.Group, "ServiceInjectionPolicy")
}

func isKind(obj *unstructured.Unstructured, group, kind string) bool {
	gk := obj.GroupVersionKind().GroupKind()
	return gk.Group == group && gk.Kind == kind
}

func tidy(refs []Reference) []Reference {
	refs = slices.DeleteFunc(refs, func(r Reference) bool { return r.Name == "" || r == Reference{ConfigMap, rootCA} })
	slices.SortFunc(refs, Compare)
	return slices.Compact(refs)
}

// named returns the uses in an object that is not a ServiceInjectionPolicy.
func named(obj *unstructured.Unstructured) []use {
	switch gk := obj.GroupVersionKind().GroupKind(); {
	case gk.Group == "" && gk.Kind == "Service":
		return handedOutBy(obj.GetAnnotations())
	case gk.Group == "" && gk.Kind == "ServiceAccount":
		return append(namesIn(obj.Object, "name", "secrets"), namesIn(obj.Object, "name", "imagePullSecrets")...)
	case (gk.Group == "networking.k8s.io" || gk.Group == "extensions") && gk.Kind == "Ingress":
		return namesIn(obj.Object, "secretName", "spec", "tls")
	}
	var out []use
	for _, u := range podtemplate.Uses(obj) {
		if u.Kind == Secret || u.Kind == ConfigMap {
			out = append(out, use{Reference{u.Kind, u.Name}, u.As})
		}
	}
	return out
}

// namesIn returns the Secrets whose names are in a list: each item has the name in the field key. Pods do not see these
// Secrets.
func namesIn(root map[string]any, key string, path ...string) []use {
	v, _, _ := unstructured.NestedFieldNoCopy(root, path...)
	list, _ := v.([]any)
	var out []use
	for _, item := range list {
		o, _ := item.(map[string]any)
		name, _ := o[key].(string)
		out = append(out, use{Reference{Secret, name}, path[len(path)-1]})
	}
	return out
}

// handedOutBy returns the objects that the annotations of a Service inject into pods. An injection policy on the
// clusters gives them out without a further check of rights. Each entry is a separate use, such as another path, or
// variables instead of a file.
func handedOutBy(annotations map[string]string) []use {
	var out []use
	for _, key := range [...]string{refractv1beta1.EnvFromAnnotation, refractv1beta1.MountAnnotation} {
		for entry := range strings.SplitSeq(annotations[key], ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			items, _ := inject.FromService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{key: entry},
			}}) // Invalid entries name no object.
			for _, ref := range given(items) {
				out = append(out, use{ref, key + " " + entry})
			}
		}
	}
	return out
}

// given returns the references in the items that the annotations of a Service inject.
func given(items *refractv1beta1.InjectedItems) []Reference {
	var out []Reference
	for _, e := range items.EnvFrom {
		if e.SecretRef != nil {
			out = append(out, Reference{Secret, e.SecretRef.Name})
		}
		if e.ConfigMapRef != nil {
			out = append(out, Reference{ConfigMap, e.ConfigMapRef.Name})
		}
	}
	for _, v := range items.Volumes {
		if v.Secret != nil {
			out = append(out, Reference{Secret, v.Secret.SecretName})
		}
		if v.ConfigMap != nil {
			out = append(out, Reference{ConfigMap, v.ConfigMap.Name})
		}
	}
	return out
}

// handsOut reports whether an annotation of a Service can inject objects.
func handsOut(annotation string) bool {
	return annotation == refractv1beta1.EnvFromAnnotation || annotation == refractv1beta1.MountAnnotation
}

// addedByPolicy is [Added] for ServiceInjectionPolicies.
func addedByPolicy(before, after *unstructured.Unstructured) []Reference {
	now := policyOf(after)
	if now == nil {
		return Written([]string{"spec"}, after.Object["spec"]) // Another version of Refract may be able to read the policy, so all references count.
	}
	var was *refractv1beta1.ServiceInjectionPolicy
	if before != nil {
		was = policyOf(before)
	}
	var out []Reference
	if _, errs := inject.Compile(inject.Stated(now)); len(errs) > 0 {
		out = Written([]string{"spec"}, after.Object["spec"])
	} else {
		for _, r := range inject.HandsOut(was, now) {
			out = append(out, Reference{r.Kind, r.Name})
		}
	}
	if inject.TakesOver(was, now) {
		out = append(out, Reference{Service, now.Spec.Service})
	}
	return tidy(out)
}

// policyOf reads a policy without its status. It returns nil if the policy cannot be read.
func policyOf(obj *unstructured.Unstructured) *refractv1beta1.ServiceInjectionPolicy {
	data, err := json.Marshal(map[string]any{"spec": obj.Object["spec"]})
	if err != nil {
		return nil
	}
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil
	}
	p.Namespace, p.Name = obj.GetNamespace(), obj.GetName()
	return p
}

// Written returns the references that a value would add to an arbitrary object, ordered by [Compare]. The keys name the
// place of the value, from the root. Written finds the same places as [Of], by the names of fields, for any kind of
// object. The result can be incomplete: the object may already contain parts of a name.
func Written(keys []string, value any) []Reference {
	var out []Reference
	var walk func(keys []string, value any)
	walk = func(keys []string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, member := range v {
				walk(append(slices.Clip(keys), key), member)
			}
		case []any:
			for _, element := range v {
				walk(keys, element)
			}
		case string:
			if kind := kindAt(keys); kind != "" {
				out = append(out, Reference{kind, v})
			}
			if len(keys) > 0 && handsOut(keys[len(keys)-1]) {
				for _, u := range handedOutBy(map[string]string{keys[len(keys)-1]: v}) {
					out = append(out, u.Reference)
				}
			}
		}
	}
	walk(withoutIndexes(keys), value)
	return tidy(out)
}

// withoutIndexes returns the keys without the indexes of lists.
func withoutIndexes(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, err := strconv.Atoi(key)
		return err == nil || key == "-"
	})
}

// kindAt returns the kind of the object that a place refers to; empty if the place is not a reference.
func kindAt(keys []string) string {
	last, parent := "", ""
	if len(keys) > 0 {
		last = keys[len(keys)-1]
	}
	if len(keys) > 1 {
		parent = keys[len(keys)-2]
	}
	volumes := slices.Contains(keys, "volumes")
	switch {
	case last == "secretName" && (volumes || slices.Contains(keys, "tls")):
		return Secret
	case last != "name":
		return ""
	case parent == "secretKeyRef", parent == "secretRef", parent == "imagePullSecrets", parent == "secrets" && len(keys) == 2:
		return Secret
	case parent == "configMapKeyRef", parent == "configMapRef":
		return ConfigMap
	case volumes && (parent == "secret" || parent == "nodePublishSecretRef"):
		return Secret
	case volumes && parent == "configMap":
		return ConfigMap
	default:
		return ""
	}
}
