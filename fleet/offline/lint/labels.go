package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// policyLabel is a label that names a policy.
type policyLabel struct {
	key         string
	kind        string
	namespaced  bool
	propagation bool
}

var policyLabels = []policyLabel{
	{corev1alpha1.PropagationPolicyLabel, corev1alpha1.KindPropagationPolicy, true, true},
	{corev1alpha1.ClusterPropagationPolicyLabel, corev1alpha1.KindClusterPropagationPolicy, false, true},
	{corev1alpha1.OverridePolicyLabel, corev1alpha1.KindOverridePolicy, true, false},
	{corev1alpha1.ClusterOverridePolicyLabel, corev1alpha1.KindClusterOverridePolicy, false, false},
}

// labelled is an object whose labels are checked.
type labelled struct {
	subject   *subject
	content   *unstructured.Unstructured
	labels    map[string]string
	namespace string

	others   []manifest.Object // All objects.
	policies *policies
	lost     *lost
	out      *report
}

// checkLabels checks the labels that name policies, and records the named policies.
func checkLabels(objects []manifest.Object, policies *policies, lost *lost, out *report) {
	for i := range objects {
		o := &objects[i]
		l := &labelled{
			subject: subjectOf(o), content: o.Content, labels: o.Content.GetLabels(), namespace: o.Content.GetNamespace(),
			others: objects, policies: policies, lost: lost, out: out,
		}
		meant := l.misspelt() + l.misplaced()
		l.both()
		for _, p := range policyLabels {
			if value, ok := l.labels[p.key]; ok {
				l.names(p, value)
			}
		}
		if meant == 0 {
			l.placed()
		}
	}
}

// checkNatives finds objects that ask to be placed although each cluster creates them for itself.
func checkNatives(outcomes []render.Outcome, out *report) {
	for i := range outcomes {
		o := &outcomes[i]
		if o.Native == "" || o.Gone != "" {
			continue
		}
		at := labelField(corev1alpha1.ClusterPropagationPolicyLabel)
		if _, ok := o.Object.Content.GetLabels()[corev1alpha1.PropagationPolicyLabel]; ok {
			at = labelField(corev1alpha1.PropagationPolicyLabel)
		}
		s := subjectOf(o.Object)
		out.add(s.finding(MadeByClusters, at, "%s", o.Native).hint("take the label off").on([]string{s.object.String()}, nil))
	}
}

func labelField(key string) string { return "metadata.labels[" + key + "]" }

// names checks one label that names a policy.
func (l *labelled) names(p policyLabel, value string) {
	at := labelField(p.key)
	ref := tree.Policy{Kind: p.kind, Name: value}
	switch {
	case value == "":
		l.out.add(l.subject.finding(EmptyPolicyLabel, at, "is empty; it must name a %s", p.kind))
		return
	case p.namespaced && l.namespace == "":
		f := l.subject.finding(NamespacedLabel, at,
			"has no effect: policies of kind %s are for objects of their namespace, and a %s has no namespace",
			p.kind, l.subject.object.Kind)
		l.out.add(f.hint("label %s names a Cluster%s", clusterWide(p.key), p.kind))
		for _, other := range l.policies.refs() {
			if other.Kind == p.kind && other.Name == value {
				l.policies.named[other] = true
			}
		}
		return
	case p.namespaced:
		ref.Namespace = l.namespace
	}
	l.policies.named[ref] = true
	if p.key == corev1alpha1.ClusterPropagationPolicyLabel && l.namespace != "" && l.labels[corev1alpha1.PropagationPolicyLabel] != "" {
		return // The label has no effect, and that is reported.
	}
	if slices.Contains(l.policies.refs(), ref) || l.lost.policy(ref) {
		return
	}
	f := l.subject.finding(MissingPolicy, at, "names %s, which is not in the input", ref)
	f.on([]string{l.subject.object.String()}, nil)
	if meant, hint := l.guess(ref); hint != "" {
		l.policies.named[meant] = true
		f.hint("%s", hint)
	}
	l.out.once(ref.String(), f)
}

// clusterWide returns the label for the cluster-scoped kind.
func clusterWide(key string) string {
	if key == corev1alpha1.PropagationPolicyLabel {
		return corev1alpha1.ClusterPropagationPolicyLabel
	}
	return corev1alpha1.ClusterOverridePolicyLabel
}

// guess suggests a policy for the name of a missing one: one of the same name that another label can name, one in
// another namespace, or one with a similar name.
func (l *labelled) guess(wanted tree.Policy) (meant tree.Policy, hint string) {
	if hint := l.foreign(wanted); hint != "" {
		return meant, hint
	}
	var names []string
	for _, is := range l.policies.refs() {
		reachable := is.Namespace == "" || is.Namespace == l.namespace
		switch {
		case is.Name == wanted.Name && is.Kind == wanted.Kind:
			return is, fmt.Sprintf("%s is in namespace %s", is.Kind, is.Namespace)
		case is.Name == wanted.Name && reachable:
			return is, fmt.Sprintf("%s exists; label %s names it", is, labelOf(is.Kind))
		case is.Kind == wanted.Kind && is.Namespace == wanted.Namespace:
			names = append(names, is.Name)
		}
	}
	n := nearest.To(wanted.Name, names)
	if n == "" {
		return meant, ""
	}
	wanted.Name = n
	return wanted, fmt.Sprintf("did you mean %q?", n)
}

// foreign describes a policy of the wanted kind and name whose apiVersion is wrong; empty if there is none.
func (l *labelled) foreign(wanted tree.Policy) string {
	for i := range l.others {
		o := objectOf(&l.others[i])
		if o.Kind == wanted.Kind && o.Namespace == wanted.Namespace && o.Name == wanted.Name {
			return fmt.Sprintf("%s exists with apiVersion %s, want %s", wanted, o.APIVersion, corev1alpha1.GroupVersion)
		}
	}
	return ""
}

func labelOf(kind string) string {
	for _, p := range policyLabels {
		if p.kind == kind {
			return p.key
		}
	}
	return ""
}

// both finds two propagation policies on an object that can name both.
func (l *labelled) both() {
	name, cluster := l.labels[corev1alpha1.PropagationPolicyLabel], l.labels[corev1alpha1.ClusterPropagationPolicyLabel]
	if l.namespace == "" || name == "" || cluster == "" {
		return
	}
	l.out.add(l.subject.finding(BothPropagationLabels, labelField(corev1alpha1.ClusterPropagationPolicyLabel),
		"ClusterPropagationPolicy %s is ignored, as the object also names PropagationPolicy %s/%s", cluster, l.namespace, name))
}

// placed finds an object that names only override policies.
func (l *labelled) placed() {
	at := ""
	for _, p := range policyLabels {
		_, ok := l.labels[p.key]
		switch {
		case ok && p.propagation:
			return
		case ok && at == "":
			at = labelField(p.key)
		}
	}
	if at == "" {
		return
	}
	f := l.subject.finding(OverrideWithoutPropagation, at,
		"has no effect: the object names no propagation policy, so it has no copies to override")
	l.out.add(f.choices("label "+l.propagationLabel()+" names one: %s", l.propagationPolicies()))
}

func (l *labelled) propagationLabel() string {
	if l.namespace == "" || len(l.propagationsOf(l.namespace)) == 0 {
		return corev1alpha1.ClusterPropagationPolicyLabel
	}
	return corev1alpha1.PropagationPolicyLabel
}

func (l *labelled) propagationPolicies() []string {
	if names := l.propagationsOf(l.namespace); len(names) > 0 {
		return names
	}
	return l.propagationsOf("")
}

// propagationsOf returns the names of the propagation policies of a namespace.
func (l *labelled) propagationsOf(namespace string) []string {
	var names []string
	for _, p := range l.policies.placing {
		if p.ref.Namespace == namespace {
			names = append(names, p.ref.Name)
		}
	}
	return names
}

// misspelt finds labels that are similar to one that names a policy, and returns their number.
func (l *labelled) misspelt() int {
	keys := make([]string, len(policyLabels))
	for i, p := range policyLabels {
		keys[i] = p.key
	}
	n := 0
	for _, key := range slices.Sorted(maps.Keys(l.labels)) {
		prefix, _ := cutPrefix(key)
		if slices.Contains(keys, key) || (prefix != "" && !strings.HasPrefix(strings.ToLower(prefix), "kubead")) {
			continue
		}
		meant := near(key, keys)
		if meant == "" {
			continue
		}
		n++
		f := l.subject.finding(UnknownPolicyLabel, labelField(key), "names no policy: there is no such label")
		l.out.add(f.hint("did you mean %q?", meant))
		l.mean(l.labels[key])
	}
	return n
}

// mean counts the policies of this name as used: the author of a misspelt label probably intended one of them.
func (l *labelled) mean(name string) {
	for _, is := range l.policies.refs() {
		if is.Name == name {
			l.policies.named[is] = true
		}
	}
}

// misplaced finds annotations of the object, and labels in its templates, that would name a policy if they were labels
// of the object. It returns their number.
func (l *labelled) misplaced() int {
	places := []struct {
		path []string
		is   string
	}{
		{[]string{"metadata", "annotations"}, "an annotation"},
		{[]string{"spec", "template", "metadata", "labels"}, "a label of the pods"},
		{[]string{"spec", "jobTemplate", "metadata", "labels"}, "a label of the jobs"},
		{[]string{"spec", "jobTemplate", "spec", "template", "metadata", "labels"}, "a label of the pods"},
	}
	n := 0
	for _, place := range places {
		found, _, _ := unstructured.NestedStringMap(l.content.Object, place.path...)
		for _, p := range policyLabels {
			value, ok := found[p.key]
			if _, right := l.labels[p.key]; !ok || right {
				continue
			}
			n++
			at := strings.Join(place.path, ".") + "[" + p.key + "]"
			f := l.subject.finding(MisplacedPolicyLabel, at, "names no policy here: it is %s", place.is)
			l.out.add(f.hint("move it to metadata.labels"))
			l.mean(value)
		}
	}
	return n
}
