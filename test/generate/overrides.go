package generate

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// author writes the rules of a policy for a known object.
type author struct {
	*builder

	kind       string // Kind of the policy.
	object     Document
	pod        *podtemplate.Places // Nil for objects without a pod template.
	containers []Document          // Init containers first.
}

func (b *builder) authorFor(kind string, o Document) *author {
	a := &author{builder: b, kind: kind, object: o}
	gvk := (&unstructured.Unstructured{Object: o}).GroupVersionKind()
	if a.pod = podtemplate.Of(gvk.GroupKind()); a.pod == nil {
		return a
	}
	spec, err := tree.Lookup(o, a.pod.Spec)
	if err != nil {
		return a
	}
	if m, ok := spec.(Document); ok {
		a.containers = slices.Concat(items(m, "initContainers"), items(m, "containers"))
	}
	return a
}

// addOverride adds an override policy for an object and returns it: an OverridePolicy if the namespace is not empty,
// otherwise a ClusterOverridePolicy.
func (b *builder) addOverride(namespace string, o Document) Document {
	kind, metadata := corev1alpha1.KindClusterOverridePolicy, Document{}
	if namespace != "" {
		kind, metadata["namespace"] = corev1alpha1.KindOverridePolicy, namespace
	}
	metadata["name"] = b.name(kind, namespace, pick(b.choices, "overrides", "regions", "release"))
	a := b.authorFor(kind, o)
	var rules []Document
	for range b.between(1, 3) {
		rules = append(rules, a.rule())
	}
	return b.add(Document{
		"apiVersion": corev1alpha1.GroupVersion.String(), "kind": kind, "metadata": metadata,
		"spec": Document{"overrideRules": rules},
	})
}

func (a *author) rule() Document {
	rule := Document{}
	if a.chance(80) {
		rule["targetClusters"] = a.target()
	}
	if !a.slips() {
		rule["overriders"] = a.overriders()
	}
	return copied(rule)
}

func (a *author) overriders() Document {
	known := []string{"annotations", "labels", "jsonpatch", "jsonpatch", "jsonpatch", "image"}
	if len(a.containers) > 0 {
		known = append(known, "image", "command", "args", "envs")
	}
	write := map[string]func() Document{
		"image": a.image, "command": a.command, "args": a.arguments, "envs": a.envs,
		"annotations": a.annotations, "labels": a.labels, "jsonpatch": a.patch,
	}
	out := Document{}
	for _, name := range some(a.choices, 3, known) {
		var list []Document
		for range a.between(1, 2) {
			list = append(list, write[name]())
		}
		out[name] = list
	}
	return out
}

// operation sets the operator of an item. It sometimes omits an operator that is the default.
func (a *author) operation(item Document, operator, otherwise string) Document {
	if operator != otherwise || a.chance(50) {
		item["operator"] = operator
	}
	return item
}

// containerName returns the name of a container, rarely of one that does not exist.
func (a *author) containerName() string {
	if a.slips() {
		return "sidecar"
	}
	return stringAt(pick(a.choices, a.containers...), "name")
}

func (a *author) container(name string) Document {
	i := slices.IndexFunc(a.containers, func(c Document) bool { return stringAt(c, "name") == name })
	if i < 0 {
		return nil
	}
	return a.containers[i]
}

func (a *author) image() Document {
	item := Document{"operations": a.imageOperations()}
	paths := map[string]string{"ConfigMap": "/data/image", databaseKind: "/spec/image"}
	form := a.IntN(10)
	switch at, ok := paths[kindOf(a.object)]; {
	case ok:
		item["imagePath"] = at
	case a.pod == nil && !a.slips(), form == 0:
		item["imagePath"] = "/metadata/annotations/image"
	case a.pod != nil && form == 1:
		item["imagePath"] = a.pod.Containers.String() + "/0/image"
	case a.pod != nil && form < 7:
		item["containerNames"] = []string{a.containerName()}
	default: // All containers, if the object has containers.
	}
	return item
}

func (a *author) imageOperations() []Document {
	values := map[string][]string{
		"Registry":   {"mirror.example", "localhost:5000", "registry.example:8443"},
		"Repository": {"mirrored/app", "team/sub/app", "app"},
		"Tag":        {"2.0.0", "latest", "v3_rc.1"},
		"Digest":     {"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"},
	}
	if a.slips() { // These mistakes often fail: a component to add exists already, or the repository is removed.
		return pick(a.choices,
			[]Document{{"imageComponent": "Tag", "operator": "addIfAbsent", "value": "stable"}},
			[]Document{{"imageComponent": "Registry", "operator": "addIfAbsent", "value": "mirror.example"}},
			[]Document{{"imageComponent": "Repository", "operator": "delete"}},
		)
	}
	var out []Document
	for _, component := range some(a.choices, 2, slices.Sorted(maps.Keys(values))) {
		operator := pick(a.choices, "overwrite", "overwrite", "delete")
		if component == "Repository" {
			operator = "overwrite"
		}
		op := a.operation(Document{"imageComponent": component}, operator, "overwrite")
		if operator != "delete" {
			op["value"] = pick(a.choices, values[component]...)
		}
		out = append(out, op)
		if operator == "delete" && a.chance(40) {
			out = append(out, Document{"imageComponent": component, "operator": "addIfAbsent", "value": pick(a.choices, values[component]...)})
		}
	}
	return out
}

func (a *author) command() Document { return a.entrypoint("/bin/sh", "-c", "sleep 10s && exec web") }

func (a *author) arguments() Document { return a.entrypoint("--log=debug", "--workers=16", "off") }

func (a *author) entrypoint(words ...string) Document {
	name := a.containerName()
	operator := pick(a.choices, "append", "overwrite", "delete")
	item := Document{"containerName": name, "value": some(a.choices, 3, words)}
	if operator == "delete" {
		item["value"] = []string{pick(a.choices, "--workers=4", "--log=info", "run")}
	}
	if operator == "overwrite" && a.chance(10) {
		item["value"] = []string{}
	}
	return a.operation(item, operator, "overwrite")
}

func (a *author) envs() Document {
	name := a.containerName()
	present := items(a.container(name), "env")
	item := Document{"containerName": name}
	operator := pick(a.choices, "addIfAbsent", "overwrite", "delete")
	if len(present) == 0 && !a.slips() {
		operator = "addIfAbsent"
	}
	switch {
	case operator == "delete":
		item["value"] = []Document{{"name": pick(a.choices, "LOG_LEVEL", "EMPTY")}}
	case (operator == "overwrite" || a.slips()) && len(present) > 0:
		item["value"] = []Document{{"name": present[0]["name"], "value": pick(a.choices, "debug", "16", "")}}
	default:
		item["value"] = []Document{
			{"name": a.fresh("EXTRA_"), "value": "on"},
			{"name": a.fresh("FROM_"), "valueFrom": Document{"configMapKeyRef": Document{"name": "settings", "key": "level", "optional": true}}},
		}
	}
	return a.operation(item, operator, "overwrite")
}

func (a *author) annotations() Document {
	return a.stringMap("example.com/owner", "team-b", "Any text: 任意の文字")
}

func (a *author) labels() Document { return a.stringMap("tier", "edge", "") }

func (a *author) stringMap(present string, values ...string) Document {
	operator := pick(a.choices, "addIfAbsent", "overwrite", "overwrite", "delete")
	item := Document{}
	switch {
	case operator == "addIfAbsent" && !a.slips():
		item["value"] = Document{a.fresh("example.com/x"): pick(a.choices, values...), a.fresh("y"): pick(a.choices, values...)}
	case operator == "delete":
		item["value"] = Document{pick(a.choices, "app.kubernetes.io/part-of", "absent"): ""}
	default:
		item["value"] = Document{pick(a.choices, present, present, present, "absent"): pick(a.choices, values...)}
	}
	return a.operation(item, operator, "overwrite")
}
