package policytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
)

// fleet is the content of the inputs of some tests, and its evaluation. The inputs are read and evaluated once.
type fleet struct {
	set        *manifest.Set
	evaluation *render.Evaluation // Nil without clusters.
	problems   []*manifest.Problem
	rollouts   *manifest.Rollouts
	clusters   map[string]*manifest.Cluster // By name.
	objects    map[string]found             // By reference.
}

// found is the result of a FindFunc.
type found struct {
	object *manifest.Object
	hint   string
	err    error
}

func newFleet(inputs []string) *fleet {
	f := &fleet{objects: map[string]found{}, clusters: map[string]*manifest.Cluster{}}
	f.set, f.problems = manifest.Read(inputs, nil)
	if len(f.problems) > 0 {
		return f
	}
	f.rollouts = f.set.Rollouts()
	for i := range f.set.Clusters {
		f.clusters[f.set.Clusters[i].Cluster.Name] = &f.set.Clusters[i]
	}
	var err error
	f.evaluation, err = render.Evaluate(f.set, render.Options{})
	if err != nil && !errors.Is(err, render.ErrNoClusters) {
		f.problems = append(f.problems, &manifest.Problem{Place: manifest.Place{File: inputs[0]}, Fact: err.Error()})
	}
	return f
}

// find finds an object by its reference, and remembers the result.
func (f *fleet) find(reference string, find FindFunc) found {
	at, ok := f.objects[reference]
	if !ok {
		at.object, at.hint, at.err = find(f.set, reference)
		f.objects[reference] = at
	}
	return at
}

// arrivals returns the results for the object of a case on each of its clusters. It reports mistakes in the case, and
// leaves out the results that they prevent.
func (f *fleet) arrivals(c *testCase, find FindFunc) []*arrival {
	object := f.object(c, find)
	if object == nil {
		return nil
	}
	var all []*arrival
	for i := range c.clusters {
		of := &c.clusters[i]
		evaluation, cluster, ok := f.on(of)
		if !ok {
			continue
		}
		if of.inline || c.inline {
			evaluation = f.suppose(object, cluster, of)
		}
		if evaluation != nil {
			all = append(all, arrive(evaluation.Find(object.Identity()), match.Cluster{Name: of.name, Labels: cluster.Cluster.Labels}, f.rollouts))
		}
	}
	return all
}

// object returns the object of a case, or reports a mistake and returns nil.
func (f *fleet) object(c *testCase, find FindFunc) *manifest.Object {
	if !c.inline {
		reference, _ := c.object.is.(string)
		at := f.find(reference, find)
		if at.err != nil {
			c.object.report(at.err.Error(), at.hint)
		}
		return at.object
	}
	// The set needs the CustomResourceDefinitions, because custom kinds may be cluster-scoped.
	documents := []any{c.object.is}
	for i := range f.set.Objects {
		if o := f.set.Objects[i].Content; o.GetKind() == "CustomResourceDefinition" {
			documents = append(documents, o.Object)
		}
	}
	set := readInline(&c.object, documents...)
	if set == nil {
		return nil
	}
	if len(set.Objects) < len(documents) {
		c.object.report("is not an object that policies apply to", "")
		return nil
	}
	return &set.Objects[0]
}

// on returns the cluster that a case names or describes.
func (f *fleet) on(of *clusterOf) (*render.Evaluation, *manifest.Cluster, bool) {
	if of.inline {
		m, _ := of.at.is.(map[string]any)
		set := readInline(&of.at, map[string]any{
			"apiVersion": corev1alpha1.GroupVersion.String(), "kind": corev1alpha1.KindFederatedCluster,
			"metadata": map[string]any{"name": m["name"], "labels": m["labels"]},
			"spec":     map[string]any{"taints": m["taints"]},
		})
		if set == nil {
			return nil, nil, false
		}
		return nil, &set.Clusters[0], true
	}
	if c, ok := f.clusters[of.name]; ok {
		return f.evaluation, c, true
	}
	hint := fmt.Sprintf("to test with an invented cluster, write {name: %s, labels: {}}", of.name)
	if near := nearest.To(of.name, slices.Sorted(maps.Keys(f.clusters))); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	of.at.report(fmt.Sprintf("cluster %q is not among the FederatedClusters of the inputs", of.name), hint)
	return nil, nil, false
}

// suppose evaluates a single object on the fleet with one more cluster. The object and the cluster replace those with
// the same names.
func (f *fleet) suppose(object *manifest.Object, cluster *manifest.Cluster, of *clusterOf) *render.Evaluation {
	set := *f.set
	set.Objects = []manifest.Object{*object}
	set.Clusters = slices.DeleteFunc(slices.Clone(f.set.Clusters), func(c manifest.Cluster) bool { return c.Cluster.Name == of.name })
	set.Clusters = append(set.Clusters, *cluster)
	evaluation, err := render.Evaluate(&set, render.Options{})
	if err != nil {
		of.at.report(err.Error(), "")
	}
	return evaluation
}

// readInline reads objects that are part of a test. At is the place of the first object. Problems are reported there,
// and the result is then nil.
func readInline(at *value, objects ...any) *manifest.Set {
	var text bytes.Buffer
	for _, o := range objects {
		line, err := json.Marshal(o)
		if err != nil {
			at.report(err.Error(), "")
			return nil
		}
		text.Write(append(line, '\n'))
	}
	set, problems := manifest.Read([]string{manifest.Stdin}, &text)
	for _, p := range problems {
		field := p.Field
		if p.Kind == corev1alpha1.KindFederatedCluster { // In a test, metadata and spec of a cluster are left out of the paths.
			field = strings.TrimPrefix(strings.TrimPrefix(field, "metadata."), "spec.")
		}
		inside := deepest(at, field)
		inside.path = strings.TrimSuffix(at.path+"."+field, ".")
		inside.report(p.Fact, p.Hint)
	}
	if len(problems) > 0 {
		return nil
	}
	return set
}

// deepest descends from a value along a path as far as the path exists.
func deepest(at *value, path string) value {
	here := *at
	for key := range strings.SplitSeq(path, ".") {
		next, ok := here.member(key)
		if !ok {
			break
		}
		here = next
	}
	return here
}
