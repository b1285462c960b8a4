package generate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// patch returns a random item of jsonpatch.
func (a *author) patch() Document {
	switch {
	case a.slips():
		return a.patchMistaken()
	case a.pod != nil && a.chance(50):
		return a.patchPod()
	case a.chance(25):
		return a.patchMetadata()
	default:
		return a.patchAnywhere()
	}
}

func (a *author) item(operator, path string, value any) Document {
	item := Document{"path": path}
	if operator != "remove" {
		item["value"] = value
	}
	return a.operation(item, operator, "replace")
}

// patchPod returns a typical patch of a workload.
func (a *author) patchPod() Document {
	spec, containers := a.pod.Spec.String(), a.pod.Containers.String()
	sidecar := Document{"name": a.fresh("sidecar-"), "image": "registry.example/platform/proxy:0.9.4", "ports": []Document{{"containerPort": 15001}}}
	return pick(a.choices,
		a.item("replace", "/spec/replicas", a.IntN(20)), // Causes a warning for kinds without replicas.
		a.item("replace", spec+"/terminationGracePeriodSeconds", a.IntN(600)),
		a.item("replace", containers+"/0/resources", Document{"limits": Document{"memory": "2Gi", "cpu": 2}}),
		a.item("replace", containers+"/0/resources/limits/memory", pick(a.choices, "4Gi", "8Gi")),
		a.item("replace", containers+"/-1/image", "registry.example/patched:1"),
		a.item("replace", containers+"/0/ports/-1", Document{"name": "http", "containerPort": 9090}),
		a.item("add", containers+"/-", sidecar),
		a.item("add", containers+"/0", sidecar),
		a.item("add", containers+"/0/securityContext", Document{"runAsNonRoot": true, "runAsUser": 65532}),
		a.item("add", spec+"/nodeSelector/topology.kubernetes.io~1zone", "zone-a"),
		a.item("add", spec+"/tolerations", []Document{{"key": "dedicated", "operator": "Exists"}}),
		a.item("add", spec+"/volumes/-", Document{"name": a.fresh("volume-"), "emptyDir": Document{"sizeLimit": "1Gi"}}),
		a.item("remove", spec+"/nodeSelector/kubernetes.io~1os", nil),
		a.item("remove", containers+"/-1/volumeMounts", nil),
	)
}

func (a *author) patchMetadata() Document {
	patches := []Document{
		a.item("add", "/metadata/annotations/example.com~1note", "set by a patch"),
		a.item("replace", "/metadata/annotations/example.com~1owner", "team-c"),
		a.item("add", "/metadata/labels/tier", "patched"),
		a.item("replace", "/metadata/labels", Document{"app": "renamed", "tier": "front"}),
		a.item("remove", "/metadata/annotations", nil),
		a.item("remove", "/metadata/finalizers", nil),
	}
	if a.kind == corev1alpha1.KindClusterOverridePolicy { // An OverridePolicy may not add finalizers.
		patches = append(patches,
			a.item("replace", "/metadata/finalizers", []string{"example.com/member"}),
			a.item("add", "/metadata/finalizers/-", "example.com/other"),
		)
	}
	return pick(a.choices, patches...)
}

// patchAnywhere changes a value of the object, or adds one next to it.
func (a *author) patchAnywhere() Document {
	found := spots(Document{"spec": a.object["spec"], "data": a.object["data"], "rules": a.object["rules"]}, "", nil)
	if len(found) == 0 {
		return a.patchMetadata()
	}
	at := pick(a.choices, found...)
	switch a.IntN(6) {
	case 0:
		return a.item("remove", at.fromEnd(), nil)
	case 1:
		if at.parentList != "" {
			return a.item("add", pick(a.choices, at.parentList+"/-", at.path), similar(a.choices, at.value))
		}
		return a.item("add", at.path[:strings.LastIndex(at.path, "/")]+"/"+tree.Escape(a.fresh("new/~")), anyValue(a.choices, 2))
	case 2:
		if kindOf(a.object) == databaseKind { // Its schema allows any value.
			return a.item("replace", at.path, anyValue(a.choices, 3))
		}
		fallthrough
	default:
		return a.item("replace", at.fromEnd(), similar(a.choices, at.value))
	}
}

// patchMistaken returns an item that is valid in a policy and fails for most objects.
func (a *author) patchMistaken() Document {
	return pick(a.choices,
		a.item("remove", "/spec/nothing/here", nil),
		a.item("add", "/metadata/annotations/a~1b", "fine"),
		a.item("replace", "/spec/ports/7", Document{"port": 1}),
		a.item("replace", "/spec/template/spec/containers/5/image", "nginx"),
		a.item("add", "/spec/template/spec/containers/web/env", []any{}),
		a.item("replace", "/apiVersion", "other.example.com/v1"), // Rejected: apiVersion is protected, and this is another group.
		a.item("replace", "/spec", "not an object"),
	)
}

// spot is a value inside an object.
type spot struct {
	path       string
	parentList string // Path of the list, if the value is an element of a list.
	last       bool   // Whether it is the last element.
	value      any
}

// fromEnd returns the path, with the index -1 for the last element of a list.
func (s spot) fromEnd() string {
	if s.last {
		return s.parentList + "/-1"
	}
	return s.path
}

// structure lists keys whose values are not changed, so that an object keeps its structure.
var structure = []string{"spec", "template", "jobTemplate", "containers", "initContainers", "name", "metadata", "data", "rules"}

// spots appends all values inside value to the list to and returns it, without the values of keys in [structure]. path
// is the path of value.
func spots(value any, path string, to []spot) []spot {
	switch value := value.(type) {
	case Document:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			at := path + "/" + tree.Escape(key)
			if !slices.Contains(structure, key) {
				to = append(to, spot{path: at, value: value[key]})
			}
			to = spots(value[key], at, to)
		}
	case []any:
		for i, item := range value {
			at := fmt.Sprintf("%s/%d", path, i)
			if !strings.HasSuffix(strings.ToLower(path), "containers") {
				to = append(to, spot{path: at, parentList: path, last: i == len(value)-1, value: item})
			}
			to = spots(item, at, to)
		}
	}
	return to
}

// similar returns a different value of the same type.
func similar(c choices, v any) any {
	switch v := v.(type) {
	case bool:
		return !v
	case int64:
		return v + int64(c.between(1, 9))
	case float64:
		return v * 2
	case string:
		return v + pick(c, "2", "-next")
	case []any:
		return append(copied(v), anyValue(c, 0))
	case Document:
		out := copied(v)
		out["extra"] = anyValue(c, 1)
		return out
	default:
		return anyValue(c, 1)
	}
}

// anyValue returns a random JSON value other than null.
func anyValue(c choices, depth int) any {
	switch c.IntN(9) {
	case 0:
		return c.chance(50)
	case 1:
		return c.IntN(100)
	case 2:
		return pick(c, int64(1)<<53+1, int64(math.MaxInt64), int64(math.MinInt64), -(int64(1)<<53 + 1))
	case 3:
		return pick(c, 0.5, -1.25, 1e100, 3e-7)
	case 4, 5:
		return pick(c, "", "text", "yes", "0x10", "~", "null", "1e3", "2026-01-02", "two\nlines\n", " space ", "日本語", "#", "a: b")
	case 6:
		if depth == 0 {
			return []any{}
		}
		return []any{anyValue(c, depth-1), anyValue(c, depth-1)}
	default:
		if depth == 0 {
			return Document{}
		}
		return Document{"key": anyValue(c, depth-1), fmt.Sprintf("k%d/~", c.IntN(3)): anyValue(c, depth-1)}
	}
}
