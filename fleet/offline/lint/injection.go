package lint

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/preview"
	"refract.dev/fleet/offline/render"
	"refract.dev/injection/inject"
)

// injections are the injection policies, and their effects on pods.
type injections struct {
	policies []*injectionPolicy
	pods     []preview.Pod // Empty without policies.
}

// injectionPolicy is an injection policy with its subject for findings.
type injectionPolicy struct {
	subject
	*preview.Policy

	// selected is the number of pods of the input that the policy selects.
	selected int
	// mountReported reports whether a finding concerns a mount without a volume.
	mountReported bool
}

// injectionsOf evaluates the injection policies of the input, if there are any.
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

// checkNotes reports input in an outdated form.
func checkNotes(notes []*manifest.Problem, out *report) {
	for _, n := range notes {
		out.add(&Finding{
			Code: FormerVersion, Severity: explain(FormerVersion).Severity, Place: n.Place,
			Policy: &render.Policy{Kind: n.Kind, Namespace: n.Namespace, Name: n.Name},
			Field:  n.Field, Message: n.Fact, Hint: n.Hint,
		})
	}
}

// checkDoubtful finds settings of policies that are probably mistakes.
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

// doubts are the fields of a policy with a code of their own.
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

// lackingVolume returns the names of the pods to which the policy does not apply because they lack the volume of a
// mount.
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

// checkServices finds Services that cannot complete a policy, and Services with annotations that no policy uses.
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
			out.add(p.finding(InvalidPolicy, err.Field, "%s, with the annotations of Service %q", err.ErrorBody(), p.Service.Content.GetName()))
		}
		if p.Missing && !lost.objects() {
			name := p.Manifest.Policy.Spec.Service
			finding := p.finding(ServiceNotFound, "spec.service", "Service %q, whose annotations complete the policy, is not in the input", name)
			out.add(finding.mean(name, namesIn(objects, schema.GroupKind{Kind: "Service"}, p.policy.Namespace)))
		}
	}
	if lost.anything || lost.kind(refractv1beta1.KindServiceInjectionPolicy) {
		return // An unreadable policy may use the Service.
	}
	for i := range objects {
		if o := &objects[i]; o.Content.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Service"}) && !asked[o] {
			checkUnasked(o, injecting, out)
		}
	}
}

// checkUnasked finds annotations of a Service that no policy uses.
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

// checkSelected finds policies that select no pod. If the input has no pod of the namespace, nothing is reported,
// because the pods may be elsewhere.
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
				finding.hint("%s has the labels itself, but only the labels of its pod template count", objectOf(o))
			}
		}
		labels := p.Manifest.Policy.Spec.Selector.MatchLabels
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			p.meanLabel(finding, all.pods, key, labels[key])
		}
		out.add(finding)
	}
}

// meanLabel adds a hint with a similar key or value.
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

// checkOverlaps finds pairs of policies that cannot both apply to a pod.
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
			out.add(finding.choices("it also conflicts with %s", others))
		}
	}
}
