package ui

import (
	"slices"

	"refract.dev/fleet/offline/preview"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// servicesPage is the data of the page "Services into pods".
type servicesPage struct {
	Policies []servicePolicy
	Pods     []podRow
	More     int
	Pod      *podPage // The selected pod.
}

type servicePolicy struct {
	Name     string
	Problems []string
	Pods     int
}

type podRow struct {
	Name, Address string
	Applied       []string
	Skipped       []string
	Refused       string
	Err           string
	Changes       int
}

type podPage struct {
	Name  string
	Lines []line
	More  int
	Err   string
}

// services returns the page with the injection policies, the pods to which they apply, and the injections into the
// selected pod.
func (s *Snapshot) services(pod string) *servicesPage {
	p := &servicesPage{}
	selected := map[string]int{}
	for i := range s.pods.Pods {
		of := &s.pods.Pods[i]
		is := podRowOf(of, selected)
		if of.String() == pod {
			p.Pod = podPageOf(of)
		}
		if len(is.Applied)+len(is.Skipped) == 0 && is.Err == "" && is.Refused == "" {
			continue
		}
		if len(p.Pods) == mostRows {
			p.More++
			continue
		}
		p.Pods = append(p.Pods, is)
	}
	for i := range s.pods.Policies {
		of := &s.pods.Policies[i]
		is := servicePolicy{Name: of.Manifest.Policy.Namespace + "/" + of.Manifest.Policy.Name}
		for _, err := range slices.Concat(of.CompileErrors, of.AnnotationErrors) {
			is.Problems = append(is.Problems, err.Error())
		}
		is.Pods = selected[is.Name]
		p.Policies = append(p.Policies, is)
	}
	return p
}

func podRowOf(of *preview.Pod, selected map[string]int) podRow {
	is := podRow{Name: of.String(), Address: "/services?pod=" + of.String()}
	if of.Err != nil {
		is.Err = of.Err.Error()
	}
	if of.Result == nil {
		return is
	}
	namespace := of.Object.Content.GetNamespace()
	for i := range of.Result.Applied {
		name := of.Result.Applied[i].Policy.Name()
		is.Applied = append(is.Applied, name)
		selected[namespace+"/"+name]++
	}
	for i := range of.Result.Skipped {
		skipped := &of.Result.Skipped[i]
		is.Skipped = append(is.Skipped, skipped.Policy.Name()+": "+skipped.Message)
	}
	if of.Result.Rejected != nil {
		is.Refused = of.Result.Rejected.Message
	}
	is.Changes = len(of.Result.Changes)
	return is
}

func podPageOf(of *preview.Pod) *podPage {
	is := &podPage{Name: of.String()}
	switch {
	case of.Err != nil:
		is.Err = of.Err.Error()
	case of.After == nil:
		is.Err = "the pod is refused"
	default:
		var changes []tree.Change
		if of.Result != nil {
			changes = of.Result.Changes
		}
		var err error
		if is.Lines, is.More, err = linesOf(render.MaskObject(of.After), changes); err != nil {
			is.Err = err.Error()
		}
	}
	return is
}
