package lint

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/preview"
	"refract.dev/internal/offline/render"
)

// injections are the policies that inject into pods, and what becomes of the pods.
type injections struct {
	policies []*injectionPolicy
	pods     []preview.Pod // None if there is no policy.
}

// injectionPolicy is a policy that injects into pods.
type injectionPolicy struct {
	subject
	*preview.Policy

	// selected is how many pods of the input the policy selects.
	selected int
	// mountReported is whether there is a finding on a mount without a volume.
	mountReported bool
}

// injectionsOf finds out what becomes of the pods of the input, if something is to be
// injected at all.
func injectionsOf(set *manifest.Set) *injections {
	all := &injections{}
	if len(set.InjectionPolicies) == 0 {
		return all
	}
	e := preview.Evaluate(set)
	all.pods = e.Pods
	for i := range e.Policies {
		p := &injectionPolicy{Policy: &e.Policies[i]}
		meta := &p.Manifest.Policy.ObjectMeta
		p.subject = subject{
			policy: &render.Policy{Kind: refractv1beta1.KindServiceInjectionPolicy, Namespace: meta.Namespace, Name: meta.Name},
			at:     p.Manifest.At,
		}
		for j := range all.pods {
			if p.selects(&all.pods[j]) {
				p.selected++
			}
		}
		all.policies = append(all.policies, p)
	}
	return all
}

// selects reports whether the policy selects a pod.
func (p *injectionPolicy) selects(pod *preview.Pod) bool {
	return p.Compiled != nil && pod.Object.Content.GetNamespace() == p.policy.Namespace && p.Compiled.Matches(pod.Labels())
}

// checkNotes looks for what is no longer written as it is.
func checkNotes(notes []*manifest.Problem, out *report) {
	for _, n := range notes {
		out.add(&Finding{
			Code: FormerVersion, Severity: explain(FormerVersion).Severity, Place: n.Place,
			Policy: &render.Policy{Kind: n.Kind, Namespace: n.Namespace, Name: n.Name},
			Field:  n.Field, Message: n.Fact, Hint: n.Hint,
		})
	}
}

// checkDoubtful looks for what policies say that is presumably not meant.
func checkDoubtful(all *injections, out *report) {
	for _, p := range all.policies {
		if p.Compiled == nil {
			continue
		}
		for _, w := range p.Compiled.Warnings() {
			finding := p.finding(codeOf(w.Path), w.Path, "%s", w.Message)
			if finding.Code == MountWithoutVolume {
				lacking := p.lackingVolume(all.pods)
				if p.selected > 0 && len(lacking) == 0 {
					continue // The pods have the volume.
				}
				p.mountReported = true
				finding.on(lacking, nil)
			}
			out.add(finding)
		}
	}
}

// doubts are the fields of a policy that have a code of their own.
var doubts = []struct {
	field *regexp.Regexp
	code  Code
}{
	{regexp.MustCompile(`^spec\.selector$`), SelectsEveryPod},
	{regexp.MustCompile(`\.volumeMounts\[\d+\]\.name$`), MountWithoutVolume},
	{regexp.MustCompile(`\.volumes\[\d+\]\.name$`), VolumeWithoutMount},
}

func codeOf(field string) Code {
	for _, d := range doubts {
		if d.field.MatchString(field) {
			return d.code
		}
	}
	return DoubtfulInjection
}

// lackingVolume returns the names of the pods for which the policy is left out because
// they do not have the volume of a mount.
func (p *injectionPolicy) lackingVolume(pods []preview.Pod) []string {
	var names []string
	for i := range pods {
		pod := &pods[i]
		if pod.Result == nil {
			continue
		}
		for j := range pod.Result.Skipped {
			if s := &pod.Result.Skipped[j]; s.Policy == p.Compiled && s.Reason == inject.ReasonVolumeMissing {
				names = append(names, objectOf(pod.Object).String())
			}
		}
	}
	return names
}

// checkServices looks for Services that cannot complete a policy, or that none asks.
func checkServices(objects []manifest.Object, injecting []*injectionPolicy, lost *lost, out *report) {
	asked := map[*manifest.Object]bool{}
	for _, p := range injecting {
		if p.Service != nil && !asked[p.Service] {
			asked[p.Service] = true
			for _, err := range p.AnnotationErrors {
				out.add(subjectOf(p.Service).finding(InvalidServiceAnnotation, err.Field, "%s", err.ErrorBody()))
			}
		}
		for _, err := range p.CompileErrors {
			out.add(p.finding(InvalidPolicy, err.Field, "%s, with what Service %q says", err.ErrorBody(), p.Service.Content.GetName()))
		}
		if p.Missing && !lost.objects() {
			name := p.Manifest.Policy.Spec.Service
			finding := p.finding(ServiceNotFound, "spec.service", "Service %q, whose annotations complete the policy, is not in the input", name)
			out.add(finding.mean(name, namesIn(objects, schema.GroupKind{Kind: "Service"}, p.policy.Namespace)))
		}
	}
	if lost.anything || lost.kind(refractv1beta1.KindServiceInjectionPolicy) {
		return // Others may ask.
	}
	for i := range objects {
		if o := &objects[i]; o.Content.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Service"}) && !asked[o] {
			checkUnasked(o, injecting, out)
		}
	}
}

// checkUnasked looks for what a Service says that no policy asks for.
func checkUnasked(service *manifest.Object, injecting []*injectionPolicy, out *report) {
	annotations := service.Content.GetAnnotations()
	for _, key := range []string{
		refractv1beta1.EnvAnnotation, refractv1beta1.EnvFromAnnotation, refractv1beta1.MountAnnotation, refractv1beta1.DeriveAnnotation,
	} {
		if annotations[key] == "" {
			continue
		}
		finding := subjectOf(service).finding(ServiceNotAsked, "metadata.annotations["+key+"]", "no policy of the namespace has service: %s and implicit: true",
			service.Content.GetName())
		for _, p := range injecting {
			if p.policy.Namespace == service.Content.GetNamespace() && p.Manifest.Policy.Spec.Service == service.Content.GetName() {
				finding.hint("%s lacks implicit: true", p.ref())
			}
		}
		out.add(finding)
		return
	}
}

func (p *injectionPolicy) ref() string {
	return p.policy.Kind + " " + p.policy.Namespace + "/" + p.policy.Name
}

// namesIn returns the names of the objects of a kind in a namespace, sorted.
func namesIn(objects []manifest.Object, kind schema.GroupKind, namespace string) []string {
	names := map[string]bool{}
	for i := range objects {
		o := objects[i].Content
		if o.GroupVersionKind().GroupKind() == kind && o.GetNamespace() == namespace {
			names[o.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// checkSelected looks for policies that select no pod. Where no pod is in the
// namespace, they may be elsewhere.
func checkSelected(all *injections, lost *lost, out *report) {
	if lost.objects() {
		return
	}
	for _, p := range all.policies {
		others := 0
		for i := range all.pods {
			if all.pods[i].Object.Content.GetNamespace() == p.policy.Namespace {
				others++
			}
		}
		if p.Compiled == nil || p.selected > 0 || others == 0 {
			continue
		}
		finding := p.finding(SelectsNoPod, "spec.selector", "selects none of the pods of the namespace")
		for i := range all.pods {
			o := all.pods[i].Object
			if o.Content.GetNamespace() == p.policy.Namespace && p.Compiled.Matches(o.Content.GetLabels()) {
				finding.hint("%s has the labels itself; those of its pods count, which stand in the template", objectOf(o))
			}
		}
		labels := p.Manifest.Policy.Spec.Selector.MatchLabels
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			p.meanLabel(finding, all.pods, key, labels[key])
		}
		out.add(finding)
	}
}

// meanLabel adds the hint that another key or value was meant.
func (p *injectionPolicy) meanLabel(finding *Finding, pods []preview.Pod, key, value string) {
	keys, values := map[string]bool{}, map[string]bool{}
	for i := range pods {
		if pods[i].Object.Content.GetNamespace() != p.policy.Namespace {
			continue
		}
		for k, v := range pods[i].Labels() {
			keys[k] = true
			if k == key {
				values[v] = true
			}
		}
	}
	if len(values) == 0 {
		finding.mean(key, slices.Sorted(maps.Keys(keys)))
	} else if !values[value] {
		finding.mean(value, slices.Sorted(maps.Keys(values)))
	}
}

// checkOverlaps looks for policies of which a pod can have only one.
func checkOverlaps(injecting []*injectionPolicy, out *report) {
	ordered := slices.DeleteFunc(slices.Clone(injecting), func(p *injectionPolicy) bool { return p.Compiled == nil })
	slices.SortStableFunc(ordered, func(a, b *injectionPolicy) int { return inject.Compare(a.Compiled, b.Compiled) })
	for i, second := range ordered {
		var finding *Finding
		var others []string
		for _, first := range ordered[:i] {
			overlap := inject.FindOverlap(first.Compiled, second.Compiled)
			switch {
			case overlap == nil:
			case finding == nil:
				finding = second.finding(PoliciesConflict, "spec", "%s", overlap.Message)
			default:
				others = append(others, first.Compiled.Name())
			}
		}
		if finding != nil {
			out.add(finding.choices("it conflicts with these, too: %s", others))
		}
	}
}
