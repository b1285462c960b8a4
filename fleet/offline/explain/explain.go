package explain

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// Explain explains the content of an object on each cluster that the evaluation shows. at is the place of interest; the
// zero Pointer means all fields that a policy changes. If neither the object nor any of its variants has the place, the
// error is an [*UnknownPathError]. If a rule failed, the place may be unknown, and there is no error.
func Explain(e *render.Evaluation, o *render.Outcome, at tree.Pointer) (*Explanation, error) {
	id := o.Object.Content
	x := &Explanation{
		APIVersion: apiVersion, Kind: kind,
		Object:    render.Object{APIVersion: id.GetAPIVersion(), Kind: id.GetKind(), Namespace: id.GetNamespace(), Name: id.GetName()},
		Path:      at.String(),
		Held:      o.Held,
		Follows:   o.Follows,
		Left:      render.ScalersIn(e.Outcomes).Left(o),
		Groups:    []Group{},
		Elsewhere: elsewhere(e, o),
		Errors:    append([]render.Finding{}, o.Errors()...),
		Warnings:  append(append(append([]render.Finding{}, e.Warnings...), o.Unasked()...), o.Warnings()...),
	}
	if o.Propagation != nil {
		x.Propagation = policyOf(*o.Propagation)
	}
	template := override.Template(id)
	for i := range o.Variants {
		if clusters := shown(o, &o.Variants[i]); len(clusters) > 0 {
			x.Groups = append(x.Groups, group(o, &o.Variants[i], template, clusters, at.String()))
		}
	}
	if err := x.checkPath(o, template); err != nil {
		return nil, err
	}
	return x, nil
}

// shown returns the clusters of a variant that are shown.
func shown(o *render.Outcome, v *override.Variant) []match.Cluster {
	var clusters []match.Cluster
	for _, c := range v.Clusters {
		if o.Shows(c) {
			clusters = append(clusters, o.Clusters[c])
		}
	}
	return clusters
}

func group(o *render.Outcome, v *override.Variant, template *unstructured.Unstructured, clusters []match.Cluster, place string) Group {
	g := Group{Failed: v.Err != nil, Policies: policies(o, v, clusters), Fields: []Field{}}
	for i := range clusters {
		g.Clusters = append(g.Clusters, clusters[i].Name)
	}
	if g.Failed {
		return g
	}
	g.Refused = o.Refuses(v)
	h := historyOf(o.ID.GroupKind, template.Object, v)
	h.refused = refusals(o, v)
	if place == "" {
		g.Fields = h.fields()
		return g
	}
	g.Fields = h.fieldsAt(place)
	if value, ok := lookup(o.Object.Content.Object, place); ok && !g.Fields[0].exists() {
		g.Fields[0] = Field{Path: place, HubOnly: true, Initial: new(h.masked(place, value, 0)), Writes: []Write{}}
	}
	return g
}

// refusals returns the warnings of a variant about values that an API server rejects.
func refusals(o *render.Outcome, v *override.Variant) []override.Warning {
	return slices.DeleteFunc(slices.Clone(v.Warnings), func(w override.Warning) bool { return !o.RefusedBy(&w) })
}

// telling describes the rules of one variant in their order of effect.
type telling struct {
	outcome  *render.Outcome
	variant  *override.Variant
	failure  *override.RuleError // The error of the variant; nil without one.
	over     bool                // Whether the failed rule has been described.
	clusters []match.Cluster     // The clusters of the variant, which have the same rules.
}

func policies(o *render.Outcome, v *override.Variant, clusters []match.Cluster) []Policy {
	t := telling{outcome: o, variant: v, clusters: clusters}
	errors.As(v.Err, &t.failure)
	all := make([]Policy, len(o.Policies))
	for i, p := range o.Policies {
		all[i] = Policy{Policy: *policyOf(p.Ref), Rules: make([]Rule, p.Rules())}
		for j := range all[i].Rules {
			all[i].Rules[j] = t.rule(p, j)
		}
	}
	return all
}

func (t *telling) rule(p *override.Policy, index int) Rule {
	is := func(a *tree.Author) bool { return a.Rule == index && a.Policy == p.Ref }
	r := Rule{Rule: index, State: Applied, Why: why(p.Target(index), t.clusters)}
	switch {
	case len(r.Why) > 0:
		r.State = NotMatched
		return r
	case t.over:
		r.State = NotReached
		return r
	case t.failure != nil && is(&t.failure.Author):
		t.over = true
		r.State = Failed
		r.Error = remark(&t.failure.Author, t.failure.Path, t.failure.Err.Error())
	}
	for i := range t.variant.Changes {
		if is(t.variant.Changes[i].By) {
			r.Changes++
		}
	}
	for i := range t.variant.Warnings {
		if w := &t.variant.Warnings[i]; is(&w.Author) {
			r.Warnings = append(r.Warnings, *remark(&w.Author, w.Path, w.Message))
			r.Refused = r.Refused || t.outcome.RefusedBy(w)
		}
	}
	return r
}

// why returns the reasons for which none of the clusters is a target.
func why(target *match.Clusters, clusters []match.Cluster) []Reason {
	var r reasons
	for i := range clusters {
		if sentence := target.Why(&clusters[i]); sentence != "" {
			r.add(clusters[i].Name, sentence)
		}
	}
	if len(r.all) == 1 {
		r.all[0].Clusters = nil
	}
	return r.all
}

// elsewhere returns the clusters without the object, with the reasons.
func elsewhere(e *render.Evaluation, o *render.Outcome) []Reason {
	r := reasons{all: []Reason{}}
	absent := absence(o)
	if absent == nil {
		return r.all
	}
	on := make(map[string]bool, len(o.Clusters))
	for i := range o.Clusters {
		on[o.Clusters[i].Name] = true
	}
	for i := range e.Clusters {
		if c := &e.Clusters[i]; !on[c.Name] {
			r.add(c.Name, absent(c))
		}
	}
	return r.all
}

// absence returns a function that tells why a cluster was not chosen for the object. It returns nil if the clusters of
// the object are not known, because of an error or because an annotation keeps its copies.
func absence(o *render.Outcome) func(*placement.Cluster) string {
	always := func(sentence string) func(*placement.Cluster) string {
		return func(*placement.Cluster) string { return sentence }
	}
	switch {
	case o.Gone != "":
		fact, _, _ := strings.Cut(o.Gone, ": ") // The text after the colon is the consequence, which is in the warnings.
		return always("the object " + fact)
	case len(o.Clusters) == 0 && (len(o.Errors()) > 0 || o.Held != "" && o.Propagation == nil):
		return nil
	}
	return func(c *placement.Cluster) string {
		why, ok := o.WhyNot(c)
		switch {
		case ok:
			return why
		case len(o.Follows) > 0:
			return "nothing that the object follows is placed there"
		default:
			return "it does not have the object, and the policy that placed it was deleted"
		}
	}
}

// reasons groups clusters with the same reason, in the order of the first cluster of each.
type reasons struct {
	all []Reason
	at  map[string]int // Index in all.
}

func (r *reasons) add(cluster, sentence string) {
	i, ok := r.at[sentence]
	if !ok {
		if r.at == nil {
			r.at = map[string]int{}
		}
		i = len(r.all)
		r.at[sentence] = i
		r.all = append(r.all, Reason{Reason: sentence})
	}
	r.all[i].Clusters = append(r.all[i].Clusters, cluster)
}

func remark(by *tree.Author, path, message string) *Remark {
	return &Remark{Overrider: by.Overrider, Item: by.Item, Path: path, Message: message}
}

func policyOf(ref tree.Policy) *render.Policy {
	return &render.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}
