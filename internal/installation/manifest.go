// Package installation is Refract in a cluster: the objects that it runs by, how they get
// there, and how everything of Refract leaves again.
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

// Part is one of the things that Refract does in a cluster, by a Deployment of its own.
type Part struct {
	// Name is that of the flag of `refract run`.
	Name string
	// Deployment is the name of the Deployment, its Service, its ServiceAccount and whatever
	// else there is one of.
	Deployment string
	// Role is the name of its ClusterRole.
	Role string

	folder string // With its kustomization, in [config.Manifests].
}

// The parts.
var (
	Propagation = Part{"propagation", "refract", owner.HubRole, "install"}
	Injection   = Part{"injection", "refract-injection", owner.InjectionRole, "install/injection"}
	Conversion  = Part{"conversion", "refract-conversion", owner.ConversionRole, "install/conversion"}
)

// Parts are all of them.
func Parts() []Part { return []Part{Propagation, Injection, Conversion} }

// Options say what is installed, and where.
type Options struct {
	// Parts are those that the cluster is to have; at least one.
	Parts []Part
	// Namespace is the system namespace; [corev1alpha1.SystemNamespace] if empty.
	Namespace string
	// Image is what the pods run, as a registry has it.
	Image string
	// Types are those whose objects are propagated; every type if there is none.
	Types []schema.GroupResource
}

// imageLine is where a Deployment names its image. There is one container in each.
var imageLine = regexp.MustCompile(`(?m)^(\s+image: ).*$`)

// Manifest returns the objects as YAML, with the comments that say what each is for, in an
// order in which they can be applied.
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

// filesOf returns the files that the kustomization of a folder names, in its order.
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

// addDocuments appends the objects of a file that are not among those seen. Types, if there are any, take the place of those whose objects
// are propagated.
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

// Objects returns what [Manifest] does, as objects of the caller's own.
func Objects(o *Options) ([]*unstructured.Unstructured, error) {
	text, err := Manifest(o)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// parse reads the objects of manifests that are ours.
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

// PartsNamed returns the parts of these names, in the order of [Parts].
func PartsNamed(names ...string) []Part {
	return slices.DeleteFunc(Parts(), func(p Part) bool { return !slices.Contains(names, p.Name) })
}

// MemberManifest returns what a member needs to let Refract in, as YAML: a ServiceAccount
// with its role.
func MemberManifest() ([]byte, error) { return fs.ReadFile(config.Manifests, "rbac/member.yaml") }
