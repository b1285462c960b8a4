package ui

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// policyPage is the data of the page of a policy.
type policyPage struct {
	About, Address string
	Kind           string
	Generation     int64
	Place          string
	Objects        []policyLink
	More           int // The number of objects that were left out.
	Rules          []ruleRow
	Findings       []findingRow
	Text           string // The policy as YAML.
}

// ruleRow is a rule, with the clusters that it matches, and its effect.
type ruleRow struct {
	Index            int
	Clusters         []string
	Hint             string
	Objects, Changes int
	Never            bool // Whether the rule has no effect.
	Failed           int  // The number of copies for which the rule failed.
}

type findingRow struct {
	Code, Message, Hint, Field string
	Bad                        bool
}

// listedPolicy is a row in the list of policies.
type listedPolicy struct {
	Text, Address, Kind string
	Objects, Findings   int
	Bad                 bool
}

// policyRef is a policy of the set: its reference, its position in a file, and its content.
type policyRef struct {
	ref      tree.Policy
	place    manifest.Place
	manifest any
	override *override.Policy // Nil if it is not an override policy.
}

// policies returns all policies, sorted by kind.
func (s *Snapshot) policies() (all []policyRef) {
	for i := range s.set.OverridePolicies {
		p := &s.set.OverridePolicies[i]
		all = append(all, policyRef{p.Compiled.Ref, p.Place, p.Policy, p.Compiled})
	}
	for i := range s.set.ClusterOverridePolicies {
		p := &s.set.ClusterOverridePolicies[i]
		all = append(all, policyRef{p.Compiled.Ref, p.Place, p.Policy, p.Compiled})
	}
	for i := range s.set.PropagationPolicies {
		p := &s.set.PropagationPolicies[i]
		all = append(all, policyRef{p.Compiled.Ref, p.Place, p.Policy, nil})
	}
	for i := range s.set.ClusterPropagationPolicies {
		p := &s.set.ClusterPropagationPolicies[i]
		all = append(all, policyRef{p.Compiled.Ref, p.Place, p.Policy, nil})
	}
	for i := range s.set.RolloutPolicies {
		p := &s.set.RolloutPolicies[i]
		all = append(all, policyRef{refer(refractv1alpha1.KindRolloutPolicy, p.Policy), p.Place, p.Policy, nil})
	}
	for i := range s.set.ClusterRolloutPolicies {
		p := &s.set.ClusterRolloutPolicies[i]
		all = append(all, policyRef{refer(refractv1alpha1.KindClusterRolloutPolicy, p.Policy), p.Place, p.Policy, nil})
	}
	return all
}

func refer(kind string, p metav1.Object) tree.Policy {
	return tree.Policy{Kind: kind, Namespace: p.GetNamespace(), Name: p.GetName(), Generation: p.GetGeneration()}
}

// listPolicies returns the rows of the list of policies, with the number of findings about each.
func (s *Snapshot) listPolicies() []listedPolicy {
	users := map[string]int{}
	for _, r := range s.fleet.rows {
		for _, name := range r.named {
			users[name]++
		}
	}
	var list []listedPolicy
	for _, p := range s.policies() {
		ref := p.ref
		ref.Generation = 0
		is := listedPolicy{Text: ref.String(), Address: policyAddress(&ref), Kind: ref.Kind, Objects: users[ref.String()]}
		for _, f := range s.findingsOf(&ref) {
			is.Findings++
			is.Bad = is.Bad || f.Bad
		}
		list = append(list, is)
	}
	return list
}

func (s *Snapshot) findPolicy(kind, namespace, name string) *policyRef {
	all := s.policies()
	at := slices.IndexFunc(all, func(p policyRef) bool {
		return p.ref.Kind == kind && p.ref.Namespace == namespace && p.ref.Name == name
	})
	if at < 0 {
		return nil
	}
	return &all[at]
}

// policy returns the page of a policy; nil if the policy does not exist.
func (s *Snapshot) policy(kind, namespace, name string) *policyPage {
	p := s.findPolicy(kind, namespace, name)
	if p == nil {
		return nil
	}
	ref := p.ref
	ref.Generation = 0
	is := &policyPage{
		About: ref.String(), Address: policyAddress(&ref), Kind: ref.Kind, Generation: p.ref.Generation, Place: p.place.String(),
		Findings: s.findingsOf(&ref),
	}
	if text, err := yamlOf(p.manifest); err == nil {
		if is.Text = text; plain(text) != text {
			is.Findings = append(is.Findings, findingRow{
				Message: "it has invisible characters, or characters that change the reading order: edit it elsewhere", Bad: true,
			})
		}
	} else {
		is.Findings = append(is.Findings, findingRow{Message: err.Error(), Bad: true})
	}
	for _, r := range s.fleet.rows {
		if !r.names(ref.String()) {
			continue
		}
		if len(is.Objects) == mostRows {
			is.More++
			continue
		}
		is.Objects = append(is.Objects, policyLink{r.about.String(), r.Address()})
	}
	if p.override != nil {
		is.Rules = s.rules(p.override)
	}
	return is
}

// rules returns, for each rule, the clusters that it matches and its effect.
func (s *Snapshot) rules(p *override.Policy) []ruleRow {
	rows := make([]ruleRow, p.Rules())
	for i := range rows {
		rows[i].Index = i
		for c := range s.evaluation.Clusters {
			if cluster := &s.evaluation.Clusters[c].Cluster; p.Target(i).Match(cluster) {
				rows[i].Clusters = append(rows[i].Clusters, cluster.Name)
			}
		}
		rows[i].Hint = "none of the clusters"
		if len(rows[i].Clusters) > 0 {
			rows[i].Hint = (&column{rows[i].Clusters}).Hint()
		}
	}
	for _, r := range s.fleet.rows {
		if r.outcome == nil {
			continue
		}
		if i := slices.IndexFunc(r.outcome.Policies, func(o *override.Policy) bool { return o.Ref == p.Ref }); i < 0 {
			continue
		}
		for v := range r.outcome.Variants {
			tell(rows, p, &r.outcome.Variants[v])
		}
	}
	for i := range rows {
		rows[i].Never = len(rows[i].Clusters) == 0 || (rows[i].Objects == 0 && rows[i].Failed == 0)
	}
	return rows
}

// tell adds the effect of the rules on one variant. A copy counts once for each rule that changed it.
func tell(rows []ruleRow, p *override.Policy, v *override.Variant) {
	touched := make([]bool, len(rows))
	for i := range v.Changes {
		if by := v.Changes[i].By; by != nil && by.Policy == p.Ref && by.Rule >= 0 && by.Rule < len(rows) {
			touched[by.Rule] = true
			rows[by.Rule].Changes += len(v.Clusters)
		}
	}
	for i := range rows {
		if touched[i] {
			rows[i].Objects += len(v.Clusters)
		}
	}
	var failure *override.RuleError
	if errors.As(v.Err, &failure) && failure.Policy == p.Ref && failure.Rule >= 0 && failure.Rule < len(rows) {
		rows[failure.Rule].Failed += len(v.Clusters)
	}
}

// findingsOf returns the findings about a policy. It ignores the generation in ref.
func (s *Snapshot) findingsOf(ref *tree.Policy) (rows []findingRow) {
	for i := range s.findings.Findings {
		f := &s.findings.Findings[i]
		if f.Policy == nil || f.Policy.Kind != ref.Kind || f.Policy.Namespace != ref.Namespace || f.Policy.Name != ref.Name {
			continue
		}
		rows = append(rows, findingRow{Code: string(f.Code), Message: f.Message, Hint: f.Hint, Field: f.Field, Bad: f.Severity == lint.Error})
	}
	return rows
}

// yamlOf returns a policy as a user would write it. It omits the fields that the API server sets.
func yamlOf(policy any) (string, error) {
	text, err := yaml.Marshal(policy)
	if err != nil {
		return "", fmt.Errorf("writing the policy as YAML: %w", err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		return "", fmt.Errorf("writing the policy as YAML: %w", err)
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, key := range []string{"creationTimestamp", "managedFields", "resourceVersion", "uid", "generation"} {
			delete(metadata, key)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
	}
	if text, err = yaml.Marshal(object); err != nil {
		return "", fmt.Errorf("writing the policy as YAML: %w", err)
	}
	return string(text), nil
}

// whatIf is the effect of changed policies.
type whatIf struct {
	Problems []string
	Same     bool
	Summary  string
	Groups   []whatIfGroup
	More     int
	Waves    []string
	Notes    []string
}

type whatIfGroup struct {
	diff.SaidGroup

	More int // The number of lines that were left out.
}

// mostGroups is the maximum number of groups on the page, and mostChanges the maximum number of lines in each group.
const (
	mostGroups  = 50
	mostChanges = 20
)

// whatIf compares the fleet with the fleet that would result from the policies in text. It changes nothing.
func (s *Snapshot) whatIf(text string) *whatIf {
	over, problems := manifest.ReadFor(nil, []string{manifest.Stdin}, bytes.NewReader([]byte(text)))
	is := &whatIf{}
	for _, p := range problems {
		is.Problems = append(is.Problems, p.Error())
	}
	if len(is.Problems) > 0 {
		return is
	}
	d, err := diff.Compare(s.set, s.set.Overlay(over), diff.Options{Select: s.concerned(over)})
	if err != nil {
		is.Problems = append(is.Problems, err.Error())
		return is
	}
	is.fill(d)
	return is
}

// concerned returns a function that selects the objects that can change: those that refer to a policy in over, and
// their followers. It returns nil, which selects all objects, if over has anything other than propagation and override
// policies.
func (s *Snapshot) concerned(over *manifest.Set) func(*manifest.Object) bool {
	names := map[tree.Policy]bool{}
	for _, ref := range over.Policies() {
		names[ref] = true
	}
	others := len(over.Objects) + len(over.Clusters) + len(over.RolloutPolicies) + len(over.ClusterRolloutPolicies)
	if len(names) == 0 || others > 0 {
		return nil
	}
	named := map[*manifest.Object]bool{}
	follows := map[manifest.Identity]bool{}
	for _, r := range s.fleet.rows {
		if r.outcome == nil {
			continue
		}
		for _, ref := range r.outcome.Object.Policies() {
			if names[ref] {
				named[r.outcome.Object] = true
				follows[r.outcome.ID] = true
			}
		}
	}
	for _, r := range s.fleet.rows { // Followers of these objects may change, too.
		if r.outcome != nil && slices.ContainsFunc(r.outcome.Leaders, func(l *render.Outcome) bool { return follows[l.ID] }) {
			named[r.outcome.Object] = true
		}
	}
	return func(o *manifest.Object) bool { return named[o] }
}

// fill copies the part of a comparison that the page shows.
func (is *whatIf) fill(d *diff.Diff) {
	is.Same, is.Summary = d.Same(), d.Totals.String()
	for i, g := range d.Said() {
		if i == mostGroups {
			is.More = len(d.Groups) - mostGroups
			break
		}
		more := max(len(g.Lines)-mostChanges, 0)
		g.Lines = g.Lines[:len(g.Lines)-more]
		is.Groups = append(is.Groups, whatIfGroup{g, more})
	}
	for i := range d.Rollouts {
		is.Waves = append(is.Waves, d.Rollouts[i].String())
	}
	for i := range d.Notes {
		is.Notes = append(is.Notes, d.Notes[i].String())
	}
	for i := range d.Unknown {
		is.Problems = append(is.Problems, d.Unknown[i].Object.String()+": "+d.Unknown[i].Reason)
	}
}
