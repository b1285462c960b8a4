package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/override"
	"refract.dev/tree"
)

// Finding is an error or a warning. What does not apply is empty.
type Finding struct {
	// Cluster is the one concerned; empty when all that the object is placed on
	// are.
	Cluster string `json:"cluster,omitempty"`
	// Object is the one concerned.
	Object *Object `json:"object,omitempty"`
	// Policy is the one at fault.
	Policy *Policy `json:"policy,omitempty"`
	// Rule is the index of its rule.
	Rule *int `json:"rule,omitempty"`
	// Path is the JSON pointer of the place in the object.
	Path string `json:"path,omitempty"`
	// Message is one sentence without an end mark.
	Message string `json:"message"`
	// Hint is advice for people that comes from having looked; it may be empty.
	Hint string `json:"-"`
}

// Object names an object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// String returns KIND NAMESPACE/NAME, or KIND NAME.
func (o *Object) String() string { return kindAndName(o.Kind, o.Namespace, o.Name) }

// Policy names a policy.
type Policy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns CLUSTER: KIND NAMESPACE/NAME: POLICY rule INDEX: MESSAGE, without
// what is empty.
func (f *Finding) String() string {
	if f.Cluster == "" {
		return f.sentence()
	}
	return f.Cluster + ": " + f.sentence()
}

// sentence is the finding without the cluster.
func (f *Finding) sentence() string {
	var parts []string
	if f.Object != nil {
		parts = append(parts, f.Object.String())
	}
	if f.Policy != nil {
		by := kindAndName(f.Policy.Kind, f.Policy.Namespace, f.Policy.Name)
		if f.Rule != nil {
			by += fmt.Sprintf(" rule %d", *f.Rule)
		}
		parts = append(parts, by)
	}
	return strings.Join(append(parts, f.Message), ": ")
}

func kindAndName(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

// Said is what some findings say, and the clusters they say it of.
type Said struct {
	Finding

	// Clusters are by name; none when the finding names none.
	Clusters []string
}

// few is how many clusters are listed by name before the rest is counted.
const few = 3

// String is that of the finding, with the first of the clusters: "eu-1",
// "eu-1, eu-2 and 212 more".
func (s *Said) String() string {
	if len(s.Clusters) == 0 {
		return s.sentence()
	}
	return Few(s.Clusters) + ": " + s.sentence()
}

// Few lists names for a sentence, and counts those after the third.
func Few(names []string) string { return fewOf(names, len(names)) }

// fewOf is [Few] of so many names, of which the first are given: all, or one more than are listed at least.
func fewOf(first []string, n int) string {
	if n <= few+1 {
		return strings.Join(first, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(first[:few], ", "), n-few)
}

// Together brings together what is said of several clusters, in the order of the
// first of them.
func Together(findings []Finding) []Said {
	var all []Said
	at := map[string]int{}
	for i := range findings {
		f := &findings[i]
		key := f.sentence() + "\x00" + f.Path
		j, ok := at[key]
		if !ok {
			j = len(all)
			at[key] = j
			all = append(all, Said{Finding: *f})
		}
		if f.Cluster != "" {
			all[j].Clusters = append(all[j].Clusters, f.Cluster)
		}
	}
	return all
}

// about returns the object as findings name it.
func (o *Outcome) about() *Object {
	c := o.Object.Content
	return &Object{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()}
}

// fail notes why the object cannot be made. For one that is held it is of no
// consequence yet.
func (o *Outcome) fail(policy *tree.Policy, message, hint string) {
	if o.Held != "" {
		o.warn(policy, message)
		return
	}
	o.errors = append(o.errors, o.finding(policy, message, hint))
}

func (o *Outcome) warn(policy *tree.Policy, message string) {
	o.warnings = append(o.warnings, o.finding(policy, message, ""))
}

func (o *Outcome) finding(policy *tree.Policy, message, hint string) Finding {
	f := Finding{Object: o.about(), Message: message, Hint: hint}
	if policy != nil {
		f.Policy = policyOf(*policy)
	}
	return f
}

// by returns a finding about what an item of a rule did.
func by(about *Object, cluster string, author tree.Author, path, message string) Finding {
	if author.Overrider != "" {
		message = fmt.Sprintf("%s[%d]: %s", author.Overrider, author.Item, message)
	}
	rule := author.Rule
	return Finding{Cluster: cluster, Object: about, Policy: policyOf(author.Policy), Rule: &rule, Path: path, Message: message}
}

// Errors returns why the object, or what some of the clusters shown get of it,
// could not be made: first what holds everywhere, then cluster by cluster.
func (o *Outcome) Errors() []Finding {
	found := slices.Clone(o.errors)
	if !slices.ContainsFunc(o.Variants, func(v override.Variant) bool { return v.Err != nil }) {
		return found
	}
	about := o.about()
	for _, at := range o.byCluster() {
		var rule *override.RuleError
		switch {
		case at.variant.Err == nil:
		case errors.As(at.variant.Err, &rule):
			found = append(found, by(about, at.name, rule.Author, rule.Path, rule.Err.Error()))
		default:
			found = append(found, Finding{Cluster: at.name, Object: about, Message: at.variant.Err.Error()})
		}
	}
	return found
}

// Warnings returns what had no effect: first what holds everywhere, then cluster
// by cluster, for the clusters shown.
func (o *Outcome) Warnings() []Finding {
	found := slices.Clone(o.warnings)
	if !slices.ContainsFunc(o.Variants, func(v override.Variant) bool { return len(v.Warnings) > 0 }) {
		return found
	}
	about := o.about()
	common := map[override.Warning]bool{}
	for i := range o.Variants {
		for _, w := range o.Variants[i].Warnings {
			everywhere := !slices.ContainsFunc(o.Variants, func(v override.Variant) bool { return !slices.Contains(v.Warnings, w) })
			if everywhere && !common[w] {
				common[w] = true
				found = append(found, by(about, "", w.Author, w.Path, w.Message))
			}
		}
	}
	for _, at := range o.byCluster() {
		for _, w := range at.variant.Warnings {
			if !common[w] {
				found = append(found, by(about, at.name, w.Author, w.Path, w.Message))
			}
		}
	}
	return found
}

// copyOn is what one cluster gets.
type copyOn struct {
	name    string
	variant *override.Variant
}

// byCluster returns what each of the clusters shown gets, by name.
func (o *Outcome) byCluster() []copyOn {
	all := make([]copyOn, len(o.Clusters))
	for i := range o.Variants {
		for _, c := range o.Variants[i].Clusters {
			all[c] = copyOn{name: o.Clusters[c].Name, variant: &o.Variants[i]}
		}
	}
	if o.shown == nil {
		return all
	}
	return slices.DeleteFunc(all, func(at copyOn) bool { return !o.shown[at.name] })
}
