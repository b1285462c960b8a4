package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/policy/podtemplate"
)

// podSpec returns the place of the pod spec; false if the kind has none.
func (c *content) podSpec() (string, bool) {
	if places := podtemplate.Of(c.kind); places != nil {
		return places.Spec.String(), true
	}
	if c.kind == podTemplate {
		return "/template/spec", true
	}
	return "/spec/template/spec", c.workload("ReplicaSet") || c.kind == (k8sschema.GroupKind{Kind: "ReplicationController"})
}

// podTemplate is the kind of a stand-alone template.
var podTemplate = k8sschema.GroupKind{Kind: "PodTemplate"}

var restartPolicies = []string{"Always", "OnFailure", "Never"}

// restarts finds a restartPolicy that pods of the kind cannot have.
func (c *content) restarts() {
	spec, ok := c.podSpec()
	if !ok {
		return
	}
	want := restartPolicies[:1]
	switch c.kind {
	case k8sschema.GroupKind{Kind: "Pod"}, podTemplate:
		want = restartPolicies
	case k8sschema.GroupKind{Group: "batch", Kind: "Job"}, k8sschema.GroupKind{Group: "batch", Kind: "CronJob"}:
		want = restartPolicies[1:]
	}
	policy, _ := c.at(spec + "/restartPolicy").(string)
	switch {
	case slices.Contains(want, policy) || policy != "" && !slices.Contains(restartPolicies, policy):
		// The schema reports unknown values.
	case policy != "":
		c.refusef(spec+"/restartPolicy", "is %q, want %s in a %s", policy, strings.Join(want, " or "), c.kind.Kind)
	case len(want) == 2 && c.at(spec) != nil:
		c.refusef(spec, "has no restartPolicy, want %s, as the default is Always", strings.Join(want, " or "))
	}
}

// strategies are the place and the valid types of the update strategy, by kind.
var strategies = map[string]struct {
	path  string
	types []string
}{
	"Deployment":  {"/spec/strategy", []string{"Recreate", rolling}},
	"StatefulSet": {"/spec/updateStrategy", []string{"OnDelete", rolling}},
	"DaemonSet":   {"/spec/updateStrategy", []string{"OnDelete", rolling}},
}

// rolling is the strategy with parameters.
const rolling = "RollingUpdate"

// strategy finds a strategy that the kind does not have, and parameters that do not fit the strategy.
func (c *content) strategy() {
	of, ok := strategies[c.kind.Kind]
	if !ok || c.kind.Group != "apps" {
		return
	}
	is, _ := c.at(of.path + "/type").(string)
	parameters, _ := c.at(of.path + "/rollingUpdate").(map[string]any)
	switch surge, unavailable := parameters["maxSurge"], parameters["maxUnavailable"]; {
	case is != "" && c.kind.Kind != "Deployment" && !slices.Contains(of.types, is): // For Deployments, the schema reports this.
		c.refusef(of.path+"/type", "is %q, want %s in a %s", is, strings.Join(of.types, " or "), c.kind.Kind)
	case parameters == nil:
	case is != "" && is != rolling:
		c.refusef(of.path+"/rollingUpdate", "is set with type %s, want it with RollingUpdate only", is)
	case c.kind.Kind == "Deployment" && isZero(surge) && isZero(unavailable):
		c.refusef(of.path+"/rollingUpdate", "has 0 for maxSurge and for maxUnavailable, want at least one above 0")
	case c.kind.Kind == "DaemonSet" && (surge == nil || isZero(surge)) == (unavailable != nil && isZero(unavailable)):
		// The default of maxUnavailable is 1, and of maxSurge 0.
		c.refusef(of.path+"/rollingUpdate", "has maxSurge %v and maxUnavailable %v, want one of them 0 and the other above 0", or(surge, 0), or(unavailable, 1))
	}
}

func or(number any, otherwise int) any {
	if number == nil {
		return otherwise
	}
	return number
}

func isZero(number any) bool { return number == int64(0) || number == "0%" }

// greatestMode is the maximum mode of a file: nine bits.
const greatestMode = 0o777

// modes finds invalid modes of files in volumes, such as 644 for 0644.
func (c *content) modes() {
	spec, ok := c.podSpec()
	if !ok {
		return
	}
	for path, volume := range Members(c.at(spec+"/volumes"), spec+"/volumes") {
		for _, source := range slices.Sorted(maps.Keys(volume)) {
			from, _ := volume[source].(map[string]any)
			if from == nil {
				continue
			}
			at := path + "/" + source
			c.mode(at+"/defaultMode", from["defaultMode"])
			c.modesOf(from, at)
			for within, projected := range Members(from["sources"], at+"/sources") {
				for _, source := range slices.Sorted(maps.Keys(projected)) {
					if from, _ := projected[source].(map[string]any); from != nil {
						c.modesOf(from, within+"/"+source)
					}
				}
			}
		}
	}
}

func (c *content) modesOf(source map[string]any, path string) {
	for at, item := range Members(source["items"], path+"/items") {
		c.mode(at+"/mode", item["mode"])
	}
}

func (c *content) mode(path string, value any) {
	if n, ok := value.(int64); ok && (n < 0 || n > greatestMode) {
		c.refusef(path, "is %d, want 0 to %d: octal 0644 is 420, and YAML reads 644 as a decimal number", n, greatestMode)
	}
}

// resources finds requests of a container, or of pods, that exceed the limits.
func (c *content) resources(path string, of map[string]any) {
	r, _ := of["resources"].(map[string]any)
	requests, _ := r["requests"].(map[string]any)
	limits, _ := r["limits"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		request, asks := quantity(requests[name])
		limit, limited := quantity(limits[name])
		if asks && limited && request.Cmp(limit) > 0 {
			c.refusef(path+"/resources/requests/"+strings.ReplaceAll(name, "/", "~1"), "is %s, want at most the limit %s", request.String(), limit.String())
		}
	}
}

// quantity parses a quantity; false if there is no value, or if the schema has reported an invalid one.
func quantity(value any) (resource.Quantity, bool) {
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case int64, float64:
		text = fmt.Sprint(v)
	default:
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}
