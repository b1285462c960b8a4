package lint

import (
	"fmt"
	"maps"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/podtemplate"
)

// absent is a name in an item of a policy. The item has an effect only on objects that have the name.
type absent struct {
	code  Code
	field string
	name  string
	// missing reports whether no object in the reach of the item has the name.
	missing bool
	// have returns the names that an object has.
	have func(o *render.Outcome, object map[string]any) []string
	// says is the message about the name.
	says string
	all  string // The format of the hint with all existing names.
}

// checkAbsent finds names in items that no object has.
func checkAbsent(overriding []*policy, lost *lost, out *report) {
	if lost.objects() {
		return
	}
	for it := range itemsOf(overriding) {
		if it.quiet() {
			it.reportAbsent(out)
		}
	}
}

func (it *item) reportAbsent(out *report) {
	for _, a := range it.names() {
		if !a.missing {
			continue
		}
		it.reported = true
		finding := it.rule.policy.finding(a.code, a.field, "%s", a.says)
		candidates := it.candidates(a.have)
		finding.mean(a.name, candidates).choices(a.all, candidates)
		out.add(finding.on(affected(it.rule.runs)))
	}
}

// enough is the maximum number of runs (variants of objects) that are searched for the names in a hint.
const enough = 64

func (it *item) candidates(have func(*render.Outcome, map[string]any) []string) []string {
	found := map[string]bool{}
	for _, at := range it.rule.runs[:min(len(it.rule.runs), enough)] {
		for _, object := range at.objects() {
			for _, name := range have(at.outcome, object) {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// names returns the names in the item.
func (it *item) names() []absent {
	switch spec := it.spec.(type) {
	case *corev1alpha1.ImageOverrider:
		if spec.ImagePath != "" {
			return nil
		}
		return it.imageNames(spec)
	case *corev1alpha1.EntrypointOverrider:
		all := []absent{it.container(spec.ContainerName, it.field+".containerName")}
		if all[0].missing || spec.Operator != corev1alpha1.OpDelete || it.rule.failed {
			return all
		}
		return append(all, it.arguments(spec)...)
	case *corev1alpha1.EnvOverrider:
		all := []absent{it.container(spec.ContainerName, it.field+".containerName")}
		if all[0].missing || spec.Operator == corev1alpha1.OpAddIfAbsent {
			return all
		}
		return append(all, it.variables(spec)...)
	case *corev1alpha1.StringMapOverrider:
		if spec.Operator == corev1alpha1.OpAddIfAbsent {
			return nil
		}
		return it.members(spec)
	default:
		return nil
	}
}

func (it *item) imageNames(spec *corev1alpha1.ImageOverrider) []absent {
	if len(spec.ContainerNames) == 0 {
		return []absent{{
			code: ContainerNotFound, field: it.field, missing: it.missed[noContainers] == it.ran, says: "no object has a container",
			have: func(*render.Outcome, map[string]any) []string { return nil },
		}}
	}
	var all []absent
	for i, name := range spec.ContainerNames {
		if !slices.Contains(spec.ContainerNames[:i], name) {
			all = append(all, it.container(name, it.containerField(i)))
		}
	}
	return all
}

func (it *item) containerField(i int) string {
	return fmt.Sprintf("%s.containerNames[%d]", it.field, i)
}

func (it *item) container(name, field string) absent {
	return absent{
		code: ContainerNotFound, field: field, name: name, missing: it.missed[containerKey(name)] == it.ran,
		have: func(o *render.Outcome, object map[string]any) []string { return namesOf(containersIn(o, object)) },
		says: fmt.Sprintf("no container or init container is named %q", name), all: "there are %s",
	}
}

func namesOf(elements []any) []string {
	names := make([]string, len(elements))
	for i, e := range elements {
		names[i] = nameOf(e)
	}
	return names
}

// listOf returns a function that returns a list of the container with this name.
func listOf(container string, part podtemplate.Part) func(*render.Outcome, map[string]any) []any {
	return func(o *render.Outcome, object map[string]any) []any {
		for _, c := range containersIn(o, object) {
			if m, ok := c.(map[string]any); ok && nameOf(c) == container {
				list, _ := m[part.String()].([]any)
				return list
			}
		}
		return nil
	}
}

func (it *item) variables(spec *corev1alpha1.EnvOverrider) []absent {
	list := listOf(spec.ContainerName, podtemplate.Env)
	var all []absent
	for i := range spec.Value {
		name := spec.Value[i].Name
		missing := it.missed[memberKey(name)]+it.missed[containerKey(spec.ContainerName)] == it.ran
		if spec.Operator == corev1alpha1.OpDelete {
			missing = !it.deleted[name] && !it.rule.failed
		}
		all = append(all, absent{
			code: EnvNotFound, field: fmt.Sprintf("%s.value[%d].name", it.field, i), name: name, missing: missing,
			have: func(o *render.Outcome, object map[string]any) []string { return namesOf(list(o, object)) },
			says: fmt.Sprintf("container %q has no variable %q", spec.ContainerName, name), all: "it has %s",
		})
	}
	return all
}

func (it *item) arguments(spec *corev1alpha1.EntrypointOverrider) []absent {
	part := podtemplate.Args
	if it.author.Overrider == podtemplate.Command.String() {
		part = podtemplate.Command
	}
	list := listOf(spec.ContainerName, part)
	var all []absent
	for i, value := range spec.Value {
		all = append(all, absent{
			code: ArgumentNotFound, field: fmt.Sprintf("%s.value[%d]", it.field, i), name: value, missing: !it.deleted[value],
			have: func(o *render.Outcome, object map[string]any) []string {
				var texts []string
				for _, argument := range list(o, object) {
					if s, ok := argument.(string); ok {
						texts = append(texts, s)
					}
				}
				return texts
			},
			says: fmt.Sprintf("container %q has no %q in its %s", spec.ContainerName, value, part), all: "there are %s",
		})
	}
	return all
}

func (it *item) members(spec *corev1alpha1.StringMapOverrider) []absent {
	code, noun := LabelNotFound, "label"
	if it.author.Overrider == "annotations" {
		code, noun = AnnotationNotFound, "annotation"
	}
	var all []absent
	for _, key := range slices.Sorted(maps.Keys(spec.Value)) {
		missing := it.missed[memberKey(key)] == it.ran
		if spec.Operator == corev1alpha1.OpDelete {
			missing = !it.deleted[key] && !it.rule.failed
		}
		all = append(all, absent{
			code: code, field: it.field + ".value[" + key + "]", name: key, missing: missing,
			have: func(_ *render.Outcome, object map[string]any) []string {
				metadata, _ := object["metadata"].(map[string]any)
				members, _ := metadata[it.author.Overrider].(map[string]any)
				return slices.Sorted(maps.Keys(members))
			},
			says: fmt.Sprintf("no object has the %s %q", noun, key), all: "there are %s",
		})
	}
	return all
}
