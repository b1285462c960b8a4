package override

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// ErrPresent is wrapped by the error of an addIfAbsent whose target already exists.
var ErrPresent = errors.New("is already there: addIfAbsent does not replace it")

// imageAction is one item of the image overrider.
type imageAction struct {
	at         tree.Pointer // Place of the image; the zero Pointer means the images of the containers.
	containers []string     // Empty means all containers.
	named      map[string]bool
	operations []corev1alpha1.ImageOperation
}

var images = newOverrider("image", func(o *corev1alpha1.Overriders) *[]corev1alpha1.ImageOverrider { return &o.Image },
	func(o *corev1alpha1.ImageOverrider) int { return len(o.ContainerNames) + len(o.Operations) }, compileImage)

func compileImage(by *tree.Author, o *corev1alpha1.ImageOverrider, path *field.Path) (action, field.ErrorList) {
	a := &imageAction{containers: o.ContainerNames, named: make(map[string]bool, len(o.ContainerNames)), operations: o.Operations}
	for _, name := range o.ContainerNames {
		a.named[name] = true
	}
	var errs field.ErrorList
	if o.ImagePath != "" {
		a.at, errs = compileImagePath(by, o.ImagePath, path.Child("imagePath"))
	}
	for i := range o.Operations {
		if err := checkOperation(&o.Operations[i], path.Child("operations").Index(i)); err != nil {
			errs = append(errs, err)
		}
	}
	return a, errs
}

func compileImagePath(by *tree.Author, s string, path *field.Path) (tree.Pointer, field.ErrorList) {
	p, err := parsePointer(s, path)
	if err != nil {
		return p, field.ErrorList{err}
	}
	if p.Keys()[0] == "apiVersion" {
		return p, field.ErrorList{forbidden(path, failAt(s, errIdentity))}
	}
	if err := protected(p); err != nil {
		return p, field.ErrorList{forbidden(path, err)}
	}
	if err := held(by, s); err != nil {
		return p, field.ErrorList{forbidden(path, err)}
	}
	return p, nil
}

// componentHints describe the valid values of each component.
var componentHints = map[corev1alpha1.ImageComponent]string{
	corev1alpha1.ImageRegistry:   "is not a valid Registry: it must be a host with a dot, a port or both, or localhost, and have no path",
	corev1alpha1.ImageRepository: "is not a valid Repository: " + whyName,
	corev1alpha1.ImageTag:        "is not a valid Tag: " + whyTag,
	corev1alpha1.ImageDigest:     "is not a valid Digest: " + whyDigest,
}

func checkOperation(op *corev1alpha1.ImageOperation, path *field.Path) *field.Error {
	// An image reference with the value as one of its components must parse into the same components. The tested
	// reference has a registry, because otherwise the first segment of a repository could be read as a registry.
	trial := image{registry: "registry.example", repository: "repository"}
	component := trial.component(op.ImageComponent)
	if component == nil {
		return field.NotSupported(path.Child("imageComponent"), op.ImageComponent, []string{"Registry", "Repository", "Tag", "Digest"})
	}
	switch op.Operator {
	case "", corev1alpha1.OpOverwrite, corev1alpha1.OpAddIfAbsent:
	case corev1alpha1.OpDelete:
		return nil
	default:
		return field.NotSupported(path.Child("operator"), op.Operator, []string{"addIfAbsent", "overwrite", "delete"})
	}
	if op.Value == "" {
		return field.Required(path.Child("value"), fmt.Sprintf("must not be empty; to remove the %s, use operator delete", op.ImageComponent))
	}
	*component = op.Value
	if parsed, err := parseImage(trial.String()); err != nil || parsed != trial {
		return field.Invalid(path.Child("value"), op.Value, componentHints[op.ImageComponent])
	}
	return nil
}

func (a *imageAction) apply(r *rendering, by *tree.Author) error {
	if len(a.operations) == 0 {
		return nil
	}
	if a.at.String() == "" {
		return a.applyToContainers(r, by)
	}
	v, err := r.doc.Lookup(a.at)
	if err != nil {
		return err
	}
	return a.rewrite(r, by, v, a.at)
}

func (a *imageAction) applyToContainers(r *rendering, by *tree.Author) error {
	containers, err := r.containers()
	if errors.Is(err, ErrNoPodTemplate) {
		return fmt.Errorf("%w; set imagePath", err)
	}
	if err != nil {
		return err
	}
	if len(containers) == 0 {
		r.warnf(by, r.pods.Containers.String(), "there are no containers")
		return nil
	}
	found := make(map[string]bool, len(a.named))
	for i := range containers {
		c := &containers[i]
		if len(a.named) > 0 && !a.named[c.name] {
			continue
		}
		found[c.name] = true
		v, ok := c.fields["image"]
		if !ok {
			return failAt(r.place(c, podtemplate.Image).String(), tree.ErrNotFound)
		}
		if err := a.rewrite(r, by, v, r.place(c, podtemplate.Image)); err != nil {
			return err
		}
		if err := r.exceeded(); err != nil {
			return err
		}
	}
	for _, name := range a.containers {
		if !found[name] {
			r.warnNoContainer(by, name)
		}
	}
	return nil
}

// rewrite changes the image v at this place.
func (a *imageAction) rewrite(r *rendering, by *tree.Author, v any, at tree.Pointer) error {
	before, ok := v.(string)
	if !ok {
		return wrongType(at.String(), "an image (a string)", v)
	}
	r.work += workOfOperation * len(a.operations)
	after, err := a.operate(before)
	switch {
	case err != nil && r.kind == secret:
		return failAt(at.String(), withoutValue(err))
	case err != nil:
		return failAt(at.String(), err)
	case after == before:
		return nil
	}
	c, err := r.doc.Set(at, after)
	if err != nil {
		return err
	}
	r.written += len(after)
	r.note(c, by)
	return nil
}

var secret = schema.GroupKind{Kind: "Secret"}

// withoutValue returns the error of operate without the value, because readers of the error may lack the right to read
// the Secret.
func withoutValue(err error) error {
	if errors.Is(err, ErrPresent) {
		return fmt.Errorf("has a component that %w (the values of a Secret are not shown)", ErrPresent)
	}
	return fmt.Errorf("has or would get a value that %w (the values of a Secret are not shown)", ErrImage)
}

// operate returns the image after all operations. The result must parse into the intended components. For example,
// r.io/a.b/c without its registry would be a.b/c, which parses with the registry a.b.
func (a *imageAction) operate(before string) (string, error) {
	img, err := parseImage(before)
	if err != nil {
		return "", fmt.Errorf("is %q, which %w", before, err)
	}
	for i := range a.operations {
		op := &a.operations[i]
		component := img.component(op.ImageComponent)
		switch op.Operator {
		case corev1alpha1.OpDelete:
			*component = ""
		case corev1alpha1.OpAddIfAbsent:
			if *component != "" {
				return "", fmt.Errorf("is %q, whose %s %w", before, op.ImageComponent, ErrPresent)
			}
			*component = op.Value
		default:
			*component = op.Value
		}
	}
	after := img.String()
	parsed, err := parseImage(after)
	if err != nil {
		return "", fmt.Errorf("would become %q, which %w", after, err)
	}
	if parsed != img {
		return "", fmt.Errorf("would become %q, which %w as intended: it reads as Registry %q and Repository %q",
			after, ErrImage, parsed.registry, parsed.repository)
	}
	return after, nil
}
