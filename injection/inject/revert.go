package inject

import (
	"slices"
	"strconv"
)

// Revert returns a JSON patch (RFC 6902) that removes the recorded additions of policies from the spec of a pod, given
// as JSON. The patch has only "remove" operations; it is nil if nothing needs to be removed. Empty lists and
// annotations remain in the pod. Revert does not modify pod.
//
// The patched spec is the spec before injection, with the later changes of other writers. If the pod exceeds the work
// limit of a pod, some additions remain. Revert returns an error only if pod is not JSON, or does not have the shape of
// a pod.
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

// appendRemovals appends operations that remove the pod's elements that l no longer has. It begins with the last one,
// so that the indexes of the other elements remain valid.
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

// revert removes the recorded additions of policies, and returns their size in bytes.
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

// forget removes the containers that a record does not list. Later webhooks added them, and will also add them to the
// next pod. If the record lists none of the containers, it belongs to another pod, and forget removes nothing.
func (b *body) forget(record *past) {
	known := func(c container) bool { return record.knows(&c) }
	if slices.ContainsFunc(b.containers, known) {
		b.containers = slices.DeleteFunc(b.containers, func(c container) bool { return !known(c) })
	}
}
