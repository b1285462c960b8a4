// Package validation has the checks of API servers on built-in types that are not in their schemas: ports, selectors,
// strategies, limits. It is pure.
package validation

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"refract.dev/fleet/offline/schema"
	"refract.dev/fleet/policy/podtemplate"
)

// refusals are the checks of API servers on built-in types that are not in their schemas.
var refusals = []func(*content){
	(*content).replicas,
	(*content).percents,
	(*content).selected,
	(*content).strategy,
	(*content).servicePorts,
	(*content).restarts,
	(*content).modes,
	(*content).containers,
}

// Check returns the reasons why an API server rejects an object that fits its schema. A message names its subject, and
// does not depend on the place. Call [Misshapen] first.
func Check(object map[string]any) []schema.Mismatch {
	u := unstructured.Unstructured{Object: object}
	c := &content{object: object, kind: u.GroupVersionKind().GroupKind()}
	for _, look := range refusals {
		look(c)
	}
	return c.found
}

// Misshapen reports whether an object with these mismatches lacks the fields or the type that [Check] relies on.
func Misshapen(found []schema.Mismatch) bool {
	return slices.ContainsFunc(found, func(m schema.Mismatch) bool {
		return m.Message == schema.NoSuchField || m.Message == schema.IsMissing || m.Path == "/kind" || m.Path == "/apiVersion"
	})
}

// content is the object that is checked.
type content struct {
	object map[string]any
	kind   k8sschema.GroupKind
	found  []schema.Mismatch
}

func (c *content) refusef(path, format string, args ...any) {
	c.found = append(c.found, schema.Mismatch{Path: path, Message: fmt.Sprintf(format, args...)})
}

// at returns the value at a path through maps, whose keys must not need escaping; nil without a value.
func (c *content) at(path string) any {
	var value any = c.object
	for key := range strings.SplitSeq(path[1:], "/") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[key]
	}
	return value
}

// workload reports whether the object has one of these kinds of the group apps.
func (c *content) workload(kinds ...string) bool {
	return c.kind.Group == "apps" && slices.Contains(kinds, c.kind.Kind)
}

func (c *content) replicas() {
	if !c.workload("Deployment", "StatefulSet", "ReplicaSet") {
		return
	}
	if n, ok := c.at("/spec/replicas").(int64); ok && n < 0 {
		c.refusef("/spec/replicas", "is %d, want 0 or more", n)
	}
}

var percent = regexp.MustCompile(`^[0-9]+%$`)

// percents checks fields with a number or a percentage.
func (c *content) percents() {
	if !c.workload("Deployment", "StatefulSet", "DaemonSet") {
		return
	}
	for _, strategy := range []string{"strategy", "updateStrategy"} {
		for _, key := range []string{"maxSurge", "maxUnavailable"} {
			path := "/spec/" + strategy + "/rollingUpdate/" + key
			switch v := c.at(path).(type) {
			case string:
				if !percent.MatchString(v) {
					c.refusef(path, "is %q, want a number or a percentage, as 25%%", v)
				}
			case int64:
				if v < 0 {
					c.refusef(path, "is %d, want 0 or more", v)
				}
			}
		}
	}
}

// selected finds a selector that does not match the object's pods.
func (c *content) selected() {
	if !c.workload("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet") {
		return
	}
	from, ok := c.at("/spec/selector").(map[string]any)
	var of metav1.LabelSelector
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(from, &of) != nil {
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(&of)
	if err != nil {
		return
	}
	have, _, err := unstructured.NestedStringMap(c.object, "spec", "template", "metadata", "labels")
	if err == nil && !selector.Matches(labels.Set(have)) {
		c.refusef("/spec/template/metadata/labels", "do not match spec.selector: %s", selector)
	}
}

const lastPort = 65535

// port checks that a port is at least first, and at most lastPort.
func (c *content) port(path string, value any, first int64) {
	if n, ok := value.(int64); ok && (n < first || n > lastPort) {
		c.refusef(path, "is %d, want a port from %d to %d", n, first, lastPort)
	}
}

func (c *content) servicePorts() {
	if c.kind != (k8sschema.GroupKind{Kind: "Service"}) {
		return
	}
	for path, p := range Members(c.at("/spec/ports"), "/spec/ports") {
		c.port(path+"/port", p["port"], 1)
		c.port(path+"/targetPort", p["targetPort"], 1)
		c.port(path+"/nodePort", p["nodePort"], 0)
	}
}

// Members iterates over the objects of a list, with their paths.
func Members(list any, path string) func(yield func(string, map[string]any) bool) {
	return func(yield func(string, map[string]any) bool) {
		elements, _ := list.([]any)
		for i, e := range elements {
			if m, ok := e.(map[string]any); ok && !yield(path+"/"+strconv.Itoa(i), m) {
				return
			}
		}
	}
}

func (c *content) containers() {
	spec, ok := c.podSpec()
	if !ok {
		return
	}
	volumes := NamesAt(c.at(spec + "/volumes"))
	if c.workload("StatefulSet") {
		for _, claim := range Members(c.at("/spec/volumeClaimTemplates"), "") {
			name, _, _ := unstructured.NestedString(claim, "metadata", "name")
			volumes = append(volumes, name)
		}
	}
	if pods, ok := c.at(spec).(map[string]any); ok { // Pods may have limits of their own, too.
		c.resources(spec, pods)
	}
	// Schemas require unique names within a list. This check covers names across the two lists.
	initial := NamesAt(c.at(spec + "/" + podtemplate.ListKeys[0]))
	for list, key := range podtemplate.ListKeys {
		for path, container := range Members(c.at(spec+"/"+key), spec+"/"+key) {
			if name := nameOf(container); list > 0 && name != "" && slices.Contains(initial, name) {
				c.refusef(path+"/name", "is %q, as that of an init container", name)
			}
			c.container(path, container, volumes)
		}
	}
}

// NamesAt returns the names of the objects of a list.
func NamesAt(list any) []string {
	elements, _ := list.([]any)
	names := make([]string, len(elements))
	for i, e := range elements {
		m, _ := e.(map[string]any)
		names[i] = nameOf(m)
	}
	return names
}

func nameOf(element map[string]any) string {
	name, _ := element["name"].(string)
	return name
}

func (c *content) container(path string, container map[string]any, volumes []string) {
	for at, p := range Members(container["ports"], path+"/ports") {
		c.port(at+"/containerPort", p["containerPort"], 1)
		c.port(at+"/hostPort", p["hostPort"], 0)
	}
	for at, e := range Members(container["env"], path+"/env") {
		c.variable(at, e)
	}
	c.resources(path, container)
	for at, m := range Members(container["volumeMounts"], path+"/volumeMounts") {
		if name := nameOf(m); name != "" && !slices.Contains(volumes, name) {
			c.refusef(at+"/name", "is %q, and there is no such volume", name)
		}
	}
}

func (c *content) variable(path string, e map[string]any) {
	name := nameOf(e)
	if why := validation.IsRelaxedEnvVarName(name); name != "" && len(why) > 0 {
		c.refusef(path+"/name", "is %q, which is no name of a variable: %s", name, strings.Join(why, ", "))
	}
	value, _ := e["value"].(string)
	if from, _ := e["valueFrom"].(map[string]any); value != "" && from != nil {
		c.refusef(path, "variable %q has both value and valueFrom, want one of them", name)
	}
}
