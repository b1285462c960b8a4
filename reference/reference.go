// Package reference knows what objects refer to that not everybody may read: Secrets
// and ConfigMaps, which travel to clusters with the object, or are given to pods there.
// It has the one list of places where such a name stands; whoever asks whether somebody
// may bring a reference in finds it here, however it was written: by the object's
// author or by an override.
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
	"refract.dev/inject"
	"refract.dev/podtemplate"
)

// Kinds of what is referred to.
const (
	Secret    = "Secret"
	ConfigMap = "ConfigMap"
	// Service stands for all Secrets and ConfigMaps that the annotations of the Service
	// name, now and later, which a ServiceInjectionPolicy takes over.
	Service = "Service"
)

// rootCA is a ConfigMap that every namespace has, and every pod.
const rootCA = "kube-root-ca.crt"

// Reference names an object in the namespace of the one that refers to it.
type Reference struct {
	Kind string // One of the constants above.
	Name string // Never empty.
}

// Compare orders references by kind and name.
func Compare(a, b Reference) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// Of returns what an object refers to, each once, ordered by [Compare]: that of the
// places of [podtemplate.References] in a pod template, that which the annotations of a
// Service have injected, that which a ServiceInjectionPolicy injects or takes over, the TLS Secrets
// of an Ingress, and the tokens and pull secrets of a ServiceAccount. Any other object
// refers to nothing. It keeps and changes nothing of obj.
func Of(obj *unstructured.Unstructured) []Reference {
	return Added(nil, obj)
}

// Added returns what after refers to and before did not, or used so that less of it was to
// be seen, each once, ordered by [Compare]: who made the one of the other must be allowed
// to read it. Both are the same object; before may be nil, for nothing. A pod template
// that had one key of a Secret and has all of them counts as one that had nothing, as
// does one that only pulled images with it; a Service with another entry of its
// annotations, whatever it had of the Secret; and a ServiceInjectionPolicy that hands a
// Secret out otherwise than before, to other pods for instance, as [inject.HandsOut]
// says. Neither is modified.
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

// use is a reference, and what it shows of the object: two that are not equal show
// something else, but that [podtemplate.All] shows what any does.
type use struct {
	Reference

	as string
}

// GivesOut reports whether pods of a cluster are given what an object refers to there
// because the object says so, be they the object's own or not; so that to keep what is
// referred to from travelling is not enough.
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

// named returns the names in an object that is no ServiceInjectionPolicy.
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

// namesIn returns the Secrets that the items of a list name by a key. They are used as
// the list is for, by something else than pods.
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

// handedOutBy returns what the annotations of a Service have injected into pods: an
// injection policy on the clusters hands it out to them, and nobody is asked there. As
// for who writes the Service on the hub, each entry is a use of its own: another path, or
// variables in place of a file.
func handedOutBy(annotations map[string]string) []use {
	var out []use
	for _, key := range [...]string{refractv1beta1.EnvFromAnnotation, refractv1beta1.MountAnnotation} {
		for entry := range strings.SplitSeq(annotations[key], ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			items, _ := inject.FromService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{key: entry},
			}}) // What is wrong there names nothing.
			for _, ref := range given(items) {
				out = append(out, use{ref, key + " " + entry})
			}
		}
	}
	return out
}

// given returns what is named by what a Service has injected by its annotations.
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

// handsOut reports whether an annotation of a Service may have something injected.
func handsOut(annotation string) bool {
	return annotation == refractv1beta1.EnvFromAnnotation || annotation == refractv1beta1.MountAnnotation
}

// addedByPolicy is [Added] for ServiceInjectionPolicies.
func addedByPolicy(before, after *unstructured.Unstructured) []Reference {
	now := policyOf(after)
	if now == nil {
		return Written([]string{"spec"}, after.Object["spec"]) // Another version of the program may be able to read it.
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

// policyOf reads a policy, without its status; nil if it cannot be read.
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

// Written returns what a value would refer to in some object at a place, of which the
// keys are given from the root, ordered by [Compare]. It knows the places of [Of], by
// their names and not by the kind of the object. What it finds is not all that an object
// comes to refer to by having the value there: parts of a name may have been there before.
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

// withoutIndexes leaves out where in a list something is.
func withoutIndexes(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, err := strconv.Atoi(key)
		return err == nil || key == "-"
	})
}

// kindAt returns of what kind the object is that is named at a place; empty if none
// is.
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
