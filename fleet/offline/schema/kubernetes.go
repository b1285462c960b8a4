package schema

import (
	_ "embed" // For kubernetes.txt.
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kubernetesText has the types of Kubernetes, one on each line. ./generate writes it.
//
//go:embed kubernetes.txt
var kubernetesText string

// objectMeta is the type of metadata.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// kubernetes has the built-in types of Kubernetes. Each is decoded on first use.
type kubernetes struct {
	version string // Such as "1.37".
	kinds   map[schema.GroupVersionKind]string
	groups  map[string]bool   // The API groups that Kubernetes has or had.
	types   map[string]string // The JSON of each type, by name.

	mu     sync.Mutex
	shapes map[string]*shape // Complete shapes are immutable. Guarded by mu.
}

func readKubernetes() *kubernetes {
	k := &kubernetes{
		kinds:  map[schema.GroupVersionKind]string{},
		groups: map[string]bool{"extensions": true}, // The former group of Deployment and Ingress.
		types:  map[string]string{},
		shapes: map[string]*shape{},
	}
	for line := range strings.Lines(kubernetesText) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "version":
			k.version = rest
		case "kind":
			version, rest, _ := strings.Cut(rest, " ")
			kind, name, _ := strings.Cut(rest, " ")
			gvk := schema.FromAPIVersionAndKind(version, kind)
			k.kinds[gvk] = name
			k.groups[gvk.Group] = true
		case "type":
			name, text, _ := strings.Cut(rest, " ")
			k.types[name] = text
		}
	}
	return k
}

// root returns the shape of objects of a type; nil if the type does not exist.
func (k *kubernetes) root(gvk schema.GroupVersionKind) *shape {
	name, ok := k.kinds[gvk]
	if !ok {
		return nil
	}
	return k.shape(name)
}

// shape returns the shape of a type that must exist.
func (k *kubernetes) shape(name string) *shape {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.resolve(name)
	if err != nil {
		panic(fmt.Sprintf("kubernetes.txt: %s: %s", name, err)) // The tests compile every type.
	}
	return s
}

// resolve returns the shape of a type. While the type is being compiled, the shape may be incomplete, because types can
// contain themselves. The caller holds k.mu.
func (k *kubernetes) resolve(name string) (*shape, error) {
	if s, ok := k.shapes[name]; ok {
		return s, nil
	}
	text, ok := k.types[name]
	if !ok {
		return nil, fmt.Errorf("there is no type %s", name)
	}
	s := &shape{}
	k.shapes[name] = s
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &props); err != nil {
		return nil, fmt.Errorf("decoding type %s: %w", name, err)
	}
	c := compiler{typed: true, resolve: k.resolve}
	return s, c.compile(&props, s)
}
