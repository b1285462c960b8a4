package override

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// Facts about images, for callers that branch on them.
var (
	// ErrImage: the text is not an image reference.
	ErrImage = errors.New("is not a valid image reference")
	// ErrPresent: addIfAbsent found something.
	ErrPresent = errors.New("is already there, and addIfAbsent does not replace it")
	// ErrNoPodTemplate: the kind has no containers that are known.
	ErrNoPodTemplate = errors.New("has no pod template that is known")
)

// image is a parsed reference: [registry/]repository[:tag][@digest].
type image struct {
	registry, repository, tag, digest string
}

// parseImage parses by the grammar of distribution/reference. The first segment
// of the name is a registry only if it holds a dot or a colon or is localhost,
// as for Docker; nothing is filled in.
func parseImage(s string) (image, error) {
	ref, err := reference.Parse(s)
	if err != nil {
		return image{}, fmt.Errorf("%q %w: %w", s, ErrImage, err)
	}
	named, ok := ref.(reference.Named)
	if !ok {
		return image{}, fmt.Errorf("%q %w: it has no repository", s, ErrImage)
	}
	img := image{repository: named.Name()}
	if first, rest, ok := strings.Cut(img.repository, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		img.registry, img.repository = first, rest
	}
	if t, ok := ref.(reference.Tagged); ok {
		img.tag = t.Tag()
	}
	if d, ok := ref.(reference.Digested); ok {
		img.digest = d.Digest().String()
	}
	return img, nil
}

// String returns the reference.
func (i image) String() string {
	var b strings.Builder
	b.Grow(len(i.registry) + len(i.repository) + len(i.tag) + len(i.digest) + 3)
	if i.registry != "" {
		b.WriteString(i.registry)
		b.WriteByte('/')
	}
	b.WriteString(i.repository)
	if i.tag != "" {
		b.WriteByte(':')
		b.WriteString(i.tag)
	}
	if i.digest != "" {
		b.WriteByte('@')
		b.WriteString(i.digest)
	}
	return b.String()
}

func (i *image) component(c corev1alpha1.ImageComponent) *string {
	switch c {
	case corev1alpha1.ImageRegistry:
		return &i.registry
	case corev1alpha1.ImageRepository:
		return &i.repository
	case corev1alpha1.ImageTag:
		return &i.tag
	case corev1alpha1.ImageDigest:
		return &i.digest
	default:
		return nil
	}
}

// imageAction is one item of the image overrider.
type imageAction struct {
	path       tree.Pointer // With at.
	at         bool         // Whether path is meant, and not the containers.
	containers []string     // Empty means all.
	operations []corev1alpha1.ImageOperation
}

func compileImage(_ string, o *corev1alpha1.ImageOverrider, path *field.Path) (action, field.ErrorList) {
	a := &imageAction{containers: o.ContainerNames, operations: o.Operations}
	var errs field.ErrorList
	if o.ImagePath != "" {
		p, err := tree.Parse(o.ImagePath)
		if err == nil {
			err = protected(p)
		}
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("imagePath"), o.ImagePath, err.Error()))
		}
		a.path, a.at = p, true
	}
	for i := range o.Operations {
		errs = append(errs, checkImageOperation(&o.Operations[i], path.Child("operations").Index(i))...)
	}
	return a, errs
}

func checkImageOperation(op *corev1alpha1.ImageOperation, path *field.Path) field.ErrorList {
	// A reference in which the value is one component; it must parse back.
	var trial image
	component := trial.component(op.ImageComponent)
	if component == nil {
		return field.ErrorList{field.NotSupported(path.Child("imageComponent"), op.ImageComponent, []string{"Registry", "Repository", "Tag", "Digest"})}
	}
	switch op.Operator {
	case "", corev1alpha1.OpOverwrite, corev1alpha1.OpAddIfAbsent:
	case corev1alpha1.OpDelete:
		return nil
	default:
		return field.ErrorList{field.NotSupported(path.Child("operator"), op.Operator, []string{"addIfAbsent", "overwrite", "delete"})}
	}
	if op.Value == "" {
		return field.ErrorList{field.Required(path.Child("value"), "must not be empty; to take the "+string(op.ImageComponent)+" away use operator delete")}
	}
	// A repository of one segment parses the same with any registry before it.
	trial = image{registry: "registry.example", repository: "repository"}
	*trial.component(op.ImageComponent) = op.Value
	if parsed, err := parseImage(trial.String()); err != nil || parsed != trial {
		return field.ErrorList{field.Invalid(path.Child("value"), op.Value, "is not a valid "+string(op.ImageComponent)+" of an image reference")}
	}
	return nil
}

func (a *imageAction) apply(r *rendering, by *tree.Author) error {
	if a.at {
		v, err := r.doc.Lookup(a.path)
		if err != nil {
			return err
		}
		return a.rewrite(r, by, a.path, v)
	}
	if r.pods == nil {
		return noPodTemplate(r.kind, "; set imagePath")
	}
	found := 0
	for _, list := range r.pods.Lists() {
		containers, _ := r.lookup(list).([]any)
		for i, c := range containers {
			container, _ := c.(map[string]any)
			name, _ := container["name"].(string)
			if len(a.containers) > 0 && !slices.Contains(a.containers, name) {
				continue
			}
			found++
			v, ok := container["image"]
			if !ok {
				return failAt(list.At(i).Member("image").String(), tree.ErrNotFound)
			}
			if err := a.rewrite(r, by, list.At(i).Member("image"), v); err != nil {
				return err
			}
		}
	}
	if found != len(a.containers) {
		a.warnMissing(r, by)
	}
	return nil
}

func (a *imageAction) rewrite(r *rendering, by *tree.Author, at tree.Pointer, v any) error {
	before, ok := v.(string)
	if !ok {
		return failAt(at.String(), fmt.Errorf("%w: want an image (a string), got %s", tree.ErrType, tree.TypeName(v)))
	}
	after, err := a.operate(before)
	if err != nil {
		return failAt(at.String(), err)
	}
	if after == before {
		return nil
	}
	c, err := r.doc.Set(at, after)
	if err != nil {
		return err
	}
	r.record(c, by)
	return nil
}

// operate returns the image after all operations. The result must mean what was
// intended: for example, without its registry the name a.b/c/d would have the
// registry a.b.
func (a *imageAction) operate(before string) (string, error) {
	img, err := parseImage(before)
	if err != nil {
		return "", err
	}
	for i := range a.operations {
		op := &a.operations[i]
		component := img.component(op.ImageComponent)
		switch op.Operator {
		case corev1alpha1.OpDelete:
			*component = ""
		case corev1alpha1.OpAddIfAbsent:
			if *component != "" {
				return "", fmt.Errorf("is %q, whose %s %q %w", before, op.ImageComponent, *component, ErrPresent)
			}
			*component = op.Value
		default:
			*component = op.Value
		}
	}
	after := img.String()
	parsed, err := parseImage(after)
	if err != nil {
		return "", fmt.Errorf("would become %w", err)
	}
	if parsed != img {
		return "", fmt.Errorf("would become %q, which %w: it would not have the components intended", after, ErrImage)
	}
	return after, nil
}

func (a *imageAction) warnMissing(r *rendering, by *tree.Author) {
	names := map[string]bool{}
	for _, list := range r.pods.Lists() {
		containers, _ := r.lookup(list).([]any)
		for _, c := range containers {
			container, _ := c.(map[string]any)
			name, _ := container["name"].(string)
			names[name] = true
		}
	}
	for _, name := range a.containers {
		if !names[name] {
			r.warn(by, r.pods.Containers.String(), "no container or init container is named %q", name)
		}
	}
}

func noPodTemplate(kind, hint string) error {
	return fmt.Errorf("kind %s %w (%s)%s", kind, ErrNoPodTemplate, podtemplate.Kinds, hint)
}
