package inject

import (
	"slices"
	"strconv"
)

// Revert returns what takes away from a pod, given as JSON, what policies have added to
// its spec, as far as its record says: a JSON patch (RFC 6902) of operations "remove"
// alone, nil if there is nothing to take away. Lists that become empty stay, and so do
// annotations. It does not modify pod.
//
// What is left is the spec as it was before, with what others have added since; with some
// of what policies added, if the pod is more work than one may be. Undo
// returns an error only if pod is not JSON, or not of the shape of a pod.
func Revert(pod []byte) ([]byte, error) {
	h, err := readHead(pod)
	if err != nil {
		return nil, err
	}
	record := h.record()
	if len(record.Applied) == 0 {
		return nil, nil
	}
	b, err := readBody(pod, initContainersPart, containersPart)
	if err != nil {
		return nil, err
	}
	b.revert(record)
	patch := appendRemovals([]byte{'['}, nil, volumeItem, &b.volumes)
	for i := range b.containers {
		c := &b.containers[i]
		for _, of := range inContainers {
			patch = appendRemovals(patch, c, of, c.list(of))
		}
	}
	if len(patch) == 1 {
		return nil, nil
	}
	return append(patch, ']'), nil
}

// appendRemovals appends operations that remove what a list lacks, the last ones
// first: the others keep their places then.
func appendRemovals(dst []byte, c *container, of itemKind, l *list) []byte {
	left := len(l.entries)
	for i := l.length - 1; i >= 0; i-- {
		if left > 0 && l.entries[left-1].at == i {
			left--
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = appendPlace(append(dst, `{"op":"remove","path":"`...), c, of.field())
		dst = strconv.AppendInt(append(dst, '/'), int64(i), 10)
		dst = append(dst, `"}`...)
	}
	return dst
}

// revert takes away what a record says that policies have added, and returns how many
// bytes that was.
func (b *body) revert(record *past) int {
	from := record.sources()
	gave := func(c *container, of itemKind, id string) bool {
		b.work += 1 + len(from[of][id])
		return !b.spent() && from.gave(c, of, id)
	}
	removed := b.volumes.remove(func(e *entry) bool { return gave(nil, volumeItem, e.id) })
	for i := range b.containers {
		c := &b.containers[i]
		for _, of := range inContainers {
			removed += c.list(of).remove(func(e *entry) bool { return gave(c, of, e.id) })
		}
	}
	return removed
}

// forget takes away the containers that a record does not know: they came after us,
// and will come after us the next time. If it knows none it is the record of another
// pod.
func (b *body) forget(record *past) {
	known := func(c container) bool { return record.knows(&c) }
	if slices.ContainsFunc(b.containers, known) {
		b.containers = slices.DeleteFunc(b.containers, func(c container) bool { return !known(c) })
	}
}
