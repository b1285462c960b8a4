package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// Finding is an error or a warning. Fields that do not apply are empty.
type Finding struct {
	// Cluster is the cluster concerned; empty if the finding applies to all clusters of the object.
	Cluster string `json:"cluster,omitempty"`
	// Object is the object concerned.
	Object *Object `json:"object,omitempty"`
	// Policy is the policy that causes the finding.
	Policy *Policy `json:"policy,omitempty"`
	// Rule is the index of the rule in the policy.
	Rule *int `json:"rule,omitempty"`
	// Path is the JSON pointer of the place in the object.
	Path string `json:"path,omitempty"`
	// Message is one sentence without a final period.
	Message string `json:"message"`
	// Hint is advice that takes the rest of the input into account; it may be empty.
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

// String returns CLUSTER: KIND NAMESPACE/NAME: POLICY rule INDEX: MESSAGE, without empty parts.
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

// Said is a message that several findings have in common, and their clusters.
type Said struct {
	Finding

	// Clusters are sorted by name; empty if the findings name none.
	Clusters []string
}

// few is the maximum number of listed names. Further ones are counted.
const few = 3

// String returns the message after the first clusters: "eu-1", "eu-1, eu-2 and 212 more".
func (s *Said) String() string {
	if len(s.Clusters) == 0 {
		return s.sentence()
	}
	return Few(s.Clusters) + ": " + s.sentence()
}

// Few lists names for a sentence. It counts those after the third.
func Few(names []string) string { return fewOf(names, len(names)) }

// fewOf returns [Few] of n names. At least the names that Few lists must be in the argument first.
func fewOf(first []string, n int) string {
	if n <= few+1 {
		return strings.Join(first, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(first[:few], ", "), n-few)
}

// Together combines findings that differ only in the cluster. The results are in the order of their first findings.
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

// about returns the object in the form of findings.
func (o *Outcome) about() *Object {
	c := o.Object.Content
	return &Object{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()}
}

// fail records the reason why the object cannot be placed or rendered. If an annotation keeps the object from being
// written, the reason has no effect yet and is a warning.
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

// by returns a finding about the effect of an item of a rule.
func by(about *Object, cluster string, author tree.Author, path, message string) Finding {
	if author.Overrider != "" {
		message = fmt.Sprintf("%s[%d]: %s", author.Overrider, author.Item, message)
	}
	rule := author.Rule
	return Finding{Cluster: cluster, Object: about, Policy: policyOf(author.Policy), Rule: &rule, Path: path, Message: message}
}

// Errors returns the errors of the object as a whole, then the errors for each of the shown clusters.
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

// Warnings returns the warnings that apply to all clusters, then the warnings for each of the shown clusters.
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

// copyOn is the variant of one cluster.
type copyOn struct {
	name    string
	variant *override.Variant
}

// byCluster returns the variants of the shown clusters, by name.
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
