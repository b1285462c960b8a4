package policytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/tree"
)

// arrival is the result for an object on one cluster.
type arrival struct {
	outcome *render.Outcome
	cluster match.Cluster
	variant *override.Variant // Nil if the cluster does not get the object.
	// rollouts are the rollout policies of the inputs.
	rollouts *manifest.Rollouts
}

// arrive returns the result for an object on a cluster. The object need not be placed on the cluster.
func arrive(o *render.Outcome, cluster match.Cluster, rollouts *manifest.Rollouts) *arrival {
	a := &arrival{outcome: o, cluster: cluster, rollouts: rollouts}
	at, ok := slices.BinarySearchFunc(o.Clusters, cluster.Name, func(c match.Cluster, name string) int {
		return strings.Compare(c.Name, name)
	})
	if !ok {
		return a
	}
	for i := range o.Variants {
		if _, ok := slices.BinarySearch(o.Variants[i].Clusters, at); ok {
			a.variant = &o.Variants[i]
		}
	}
	return a
}

// problem returns the error if the object could not be placed or rendered; ok is false without an error.
func (a *arrival) problem() (string, bool) {
	if a.variant != nil {
		if a.variant.Err == nil {
			return "", false
		}
		return a.variant.Err.Error(), true
	}
	if len(a.outcome.Variants) > 0 {
		return "", false // The object is placed on other clusters only.
	}
	errs := a.outcome.Errors()
	if len(errs) == 0 {
		return "", false
	}
	texts := make([]string, len(errs))
	for i := range errs {
		texts[i] = sentence(errs[i])
	}
	return strings.Join(texts, "; "), true
}

// sentence is a finding without the object and the cluster, which the case names.
func sentence(f render.Finding) string {
	f.Object, f.Cluster = nil, ""
	return f.String()
}

// warnings returns the warnings about the object as a whole, then those by rule.
func (a *arrival) warnings() []string {
	texts := []string{}
	for _, w := range a.outcome.Warnings() {
		if w.Rule == nil {
			texts = append(texts, sentence(w))
		}
	}
	if a.variant != nil {
		for _, w := range a.variant.Warnings {
			texts = append(texts, w.String())
		}
	}
	return texts
}

// wave returns the name of the wave that brings a change of the object to the cluster, or an error with the reason if
// no wave does.
func (a *arrival) wave() (string, error) {
	_, names, _, err := a.outcome.Obeys(a.rollouts)
	switch {
	case err != nil:
		return "", err
	case len(names.All()) == 0:
		return "", errors.New("neither the object, nor an object that it follows, nor its namespace names a rollout policy, " +
			"so it reaches every cluster at once")
	}
	policy, hold, _ := rollout.Obeyed(names, a.rollouts.Find)
	if policy == nil {
		return "", errors.New(hold)
	}
	return policy.WaveOf(&a.cluster), nil
}

// object is the content for the cluster. It is shared and must not be modified.
func (a *arrival) object() map[string]any { return a.variant.Object.Object }

// author returns the author of the value at a place of the object; nil if no policy set the value.
func (a *arrival) author(path string) *tree.Author {
	changes := a.variant.Changes
	return tree.Trace(changes, path, len(changes)).Author()
}

func (a *arrival) kind() schema.GroupKind { return a.outcome.ID.GroupKind }

// shown returns a value with the values of a Secret masked.
func (a *arrival) shown(path string, is any) any {
	return render.Mask(a.kind(), tree.Change{Path: path, Op: tree.OpAdd, After: is}).After
}

// unevaluated describes why an expression has no value. Any error of CEL may quote a value, for example as a missing
// key or an invalid pattern, or in other ways in later versions. So errors about Secrets are not shown.
func (a *arrival) unevaluated(err error) string {
	if render.IsSecret(a.outcome.Object.Content) || render.IsSecret(a.variant.Object) {
		return " cannot be evaluated; the reason may quote the Secret and is not shown"
	}
	return fmt.Sprintf(": %v", err)
}

// variables returns the variables of CEL expressions.
func (a *arrival) variables() map[string]any {
	labels := make(map[string]any, len(a.cluster.Labels))
	for key, v := range a.cluster.Labels {
		labels[key] = v
	}
	return map[string]any{
		"object":   a.object(),
		"hub":      a.outcome.Object.Content.Object,
		"cluster":  map[string]any{"name": a.cluster.Name, "labels": labels},
		"changes":  func() any { return changeVariables(a.variant.Changes) },
		"warnings": func() any { return a.warnings() },
	}
}

func changeVariables(changes []tree.Change) []any {
	all := make([]any, len(changes))
	for i := range changes {
		c := &changes[i]
		all[i] = map[string]any{
			"path": c.Path, "op": string(c.Op), "before": c.Before, "after": c.After,
			"by": c.By.String(), "policy": c.By.Policy.String(), "rule": int64(c.By.Rule), "overrider": c.By.Overrider,
		}
	}
	return all
}

// failure returns a failure on this cluster.
func (a *arrival) failure(at *value, message string) Failure {
	return Failure{Check: checkOf(at), Cluster: a.cluster.Name, Line: at.line, Message: message}
}

// checkOf returns the key under expect that a value belongs to.
func checkOf(at *value) string {
	for i, key := range at.keys {
		if key == "expect" && i+1 < len(at.keys) {
			name, _ := at.keys[i+1].(string)
			return name
		}
	}
	return ""
}

// differs returns the failure of a place with another value than expected; got is nil if the place has no value.
func (a *arrival) differs(at *value, path string, want any, got *any) Failure {
	want = a.shown(path, want)
	f := a.failure(at, fmt.Sprintf("%s does not exist, want %s", named(path), render.Text(want)))
	f.Path, f.Want, f.By, f.Traced = path, want, a.author(path), true
	if got != nil {
		f.Got = a.shown(path, *got)
		f.Message = fmt.Sprintf("%s is %s, want %s", named(path), render.Text(f.Got), render.Text(want))
		if tree.Equal(f.Got, want) {
			f.Message = named(path) + " is not as expected; values of a Secret are not shown"
		}
	}
	return f
}

// unexpected returns the failure of a place that should have no value.
func (a *arrival) unexpected(at *value, path string, got any) Failure {
	got = a.shown(path, got)
	f := a.failure(at, fmt.Sprintf("%s is %s, want no value", named(path), render.Text(got)))
	f.Path, f.Got, f.By, f.Traced = path, got, a.author(path), true
	return f
}

func named(path string) string {
	if path == "" {
		return "the object"
	}
	return path
}
