// Package installation installs Refract in a cluster, and removes it completely.
package installation

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/config"
	"refract.dev/internal/owner"
)

// Part is a part of Refract in a cluster, with its own Deployment.
type Part struct {
	// Name is the name of the part, and of its flag of `refract run`.
	Name string
	// Deployment is the name of the part's Deployment, Service and ServiceAccount, and of all other objects that each
	// part has.
	Deployment string
	// Role is the name of its ClusterRole.
	Role string

	folder string // Folder of its kustomization in [config.Manifests].
}

// The parts.
var (
	Propagation = Part{"propagation", "refract", owner.HubRole, "install"}
	Injection   = Part{"injection", "refract-injection", owner.InjectionRole, "install/injection"}
	Conversion  = Part{"conversion", "refract-conversion", owner.ConversionRole, "install/conversion"}
)

// Parts returns all parts.
func Parts() []Part { return []Part{Propagation, Injection, Conversion} }

// Options configure an installation.
type Options struct {
	// Parts are the parts to install; at least one.
	Parts []Part
	// Namespace is the system namespace. It defaults to [corev1alpha1.SystemNamespace].
	Namespace string
	// Image is the image of the pods, with its registry.
	Image string
	// Types are the types to propagate. If the list is empty, all types can be propagated.
	Types []schema.GroupResource
}

// imageLine matches the image of a Deployment. Each Deployment has one container.
var imageLine = regexp.MustCompile(`(?m)^(\s+image: ).*$`)

// Manifest returns the objects as YAML, with comments about their purpose. They can be applied in this order.
func Manifest(o *Options) ([]byte, error) {
	namespace := o.Namespace
	if namespace == "" {
		namespace = corev1alpha1.SystemNamespace
	}
	if msgs := validation.IsDNS1123Label(namespace); len(msgs) > 0 {
		return nil, fmt.Errorf("system namespace %q: %s", namespace, msgs[0])
	}
	if o.Image == "" || strings.ContainsAny(o.Image, " \t\r\n\"'#") {
		return nil, fmt.Errorf("image %q: want a reference such as registry.example.com/refract:v0.1.0", o.Image)
	}
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, part := range o.Parts {
		files, err := filesOf(part.folder)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := addDocuments(&out, file, o.Types, seen); err != nil {
				return nil, err
			}
		}
	}
	text := bytes.ReplaceAll(out.Bytes(), []byte(corev1alpha1.SystemNamespace), []byte(namespace))
	return imageLine.ReplaceAll(text, []byte("${1}"+strings.ReplaceAll(o.Image, "$", "$$"))), nil
}

// filesOf returns the files that the kustomization of a folder lists, in the same order.
func filesOf(folder string) ([]string, error) {
	text, err := fs.ReadFile(config.Manifests, path.Join(folder, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var k struct{ Resources []string }
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("reading the kustomization of %s: %w", folder, err)
	}
	var files []string
	for _, resource := range k.Resources {
		at := path.Join(folder, resource)
		if path.Ext(at) == ".yaml" {
			files = append(files, at)
			continue
		}
		more, err := filesOf(at)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// addDocuments appends those objects of a file that are not in seen. If types is not empty, the rules of [TypesRole]
// get these types.
func addDocuments(to *bytes.Buffer, file string, types []schema.GroupResource, seen map[string]bool) error {
	text, err := fs.ReadFile(config.Manifests, file)
	if err != nil {
		return err
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		o := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.Unmarshal(document, &o.Object)); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		id := o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
		if o.Object == nil || seen[id] {
			continue
		}
		seen[id] = true
		if len(types) > 0 && o.GetKind() == "ClusterRole" && o.GetName() == TypesRole {
			if document, err = withTypes(document, types); err != nil {
				return fmt.Errorf("changing %s: %w", file, err)
			}
		}
		if to.Len() > 0 {
			to.WriteString("---\n")
		}
		to.Write(bytes.TrimLeft(document, "\n"))
	}
}

// Objects returns the objects of [Manifest]. The caller may modify them.
func Objects(o *Options) ([]*unstructured.Unstructured, error) {
	text, err := Manifest(o)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// parse reads the objects of an embedded manifest.
func parse(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		u := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.Unmarshal(document, &u.Object)); err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		objects = append(objects, u)
	}
}

// PartsNamed returns the parts with these names, in the order of [Parts].
func PartsNamed(names ...string) []Part {
	return slices.DeleteFunc(Parts(), func(p Part) bool { return !slices.Contains(names, p.Name) })
}

// MemberManifest returns the objects that Refract needs on a member, as YAML: a ServiceAccount with its role.
func MemberManifest() ([]byte, error) { return fs.ReadFile(config.Manifests, "rbac/member.yaml") }
