package override

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// ErrNoPodTemplate is wrapped by the error of a container overrider on an object whose kind has no known pod template.
var ErrNoPodTemplate = fmt.Errorf("has no known pod template (known are those of %s)", podtemplate.Kinds)

// container is a container or init container of the object. It describes the state at the last call of
// [rendering.containers].
type container struct {
	list   int // Index in the Lists of its pod template.
	index  int // Index in the list.
	name   string
	fields map[string]any // Read-only.
}

// containers returns the init containers, followed by the containers. The slice is valid until the next call.
func (r *rendering) containers() ([]container, error) {
	if r.pods == nil {
		return nil, fmt.Errorf("kind %s %w", r.kind, ErrNoPodTemplate)
	}
	spec, err := r.podSpec()
	if err != nil {
		return nil, err
	}
	found := r.scratch[:0]
	for l, key := range podtemplate.ListKeys {
		list, ok := spec[key].([]any)
		if !ok && spec[key] != nil {
			return nil, wrongType(r.pods.Lists()[l].String(), "an array", spec[key])
		}
		for i, item := range list {
			fields, ok := item.(map[string]any)
			if !ok {
				return nil, wrongType(r.pods.Lists()[l].At(i).String(), "an object", item)
			}
			name, _ := fields["name"].(string)
			found = append(found, container{list: l, index: i, name: name, fields: fields})
		}
	}
	r.work += workOfContainer * len(found)
	return found, nil
}

// podSpec returns the spec of the pods; nil if it is missing.
func (r *rendering) podSpec() (map[string]any, error) {
	v, err := r.doc.Lookup(r.pods.Spec)
	if err != nil && !errors.Is(err, tree.ErrNotFound) {
		return nil, err
	}
	spec, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, wrongType(r.pods.Spec.String(), "an object", v)
	}
	return spec, nil
}

// place returns the place of a part of a container.
func (r *rendering) place(c *container, part podtemplate.Part) tree.Pointer {
	return r.pods.Part(c.list, c.index, part)
}

// containerNamed returns the first container with this name, or nil.
func containerNamed(containers []container, name string) *container {
	i := slices.IndexFunc(containers, func(c container) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

func (r *rendering) warnNoContainer(by *tree.Author, name string) {
	r.warnf(by, r.pods.Containers.String(), "no container or init container is named %q", name)
}

// listAction is one item of the overriders command, args and envs. It replaces a list of one container.
type listAction struct {
	container string
	part      podtemplate.Part
	edit      listEdit
	size      int // Size of the written values in bytes.
}

// listEdit returns a new list, and does not modify the old one. The result absent lists the items that an overwrite did
// not find.
type listEdit func(before []any) (after []any, absent []string, err error)

// emptied is a list of a container that an override has emptied. The list stays until the end of the rendering, so that
// later rules can add to it.
type emptied struct {
	container string
	part      podtemplate.Part
}

func (a *listAction) apply(r *rendering, by *tree.Author) error {
	containers, err := r.containers()
	if err != nil {
		return err
	}
	c := containerNamed(containers, a.container)
	if c == nil {
		r.warnNoContainer(by, a.container)
		return nil
	}
	at := r.place(c, a.part)
	v := c.fields[a.part.String()]
	before, ok := v.([]any)
	if !ok && v != nil {
		return wrongType(at.String(), "an array", v)
	}
	after, absent, err := a.edit(before)
	if err != nil {
		return failAt(at.String(), err)
	}
	r.work += workOfItem * (len(before) + len(after) + len(absent))
	if len(absent) > 0 {
		r.warnf(by, at.String(), "%s has no %s, and overwrite adds nothing", at, strings.Join(absent, ", "))
	}
	if len(before)+len(after) == 0 {
		return nil
	}
	if len(after) == 0 {
		r.emptied = append(r.emptied, emptied{container: a.container, part: a.part})
	}
	change, err := r.doc.Set(at, after)
	if err != nil {
		return err
	}
	r.written += a.size
	r.note(change, by)
	return nil
}

// dropEmptied removes the emptied lists that are still empty.
func (r *rendering) dropEmptied() {
	for _, e := range r.emptied {
		containers, err := r.containers()
		if err != nil {
			return // A later rule has replaced the containers by other values.
		}
		c := containerNamed(containers, e.container)
		if c == nil {
			continue
		}
		if list, ok := c.fields[e.part.String()].([]any); ok && len(list) == 0 {
			_, _ = r.doc.Remove(r.place(c, e.part)) // The place exists.
		}
	}
}
