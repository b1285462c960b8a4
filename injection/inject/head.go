package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree/raw"
)

// head is the relevant part of a pod's metadata.
type head struct {
	name         string // Empty if the API server generates the name, because the next such pod gets another one.
	labels       podLabels
	annotations  []annotation      // Only the annotations that this package uses.
	values       map[string]string // Maps the keys of annotations to their values; created if there are many.
	size         int               // The bytes of all annotations.
	hasMetadata  bool
	hasAnnotated bool // The metadata has the member annotations.
}

// annotation is one annotation of a pod.
type annotation struct{ key, value string }

// readHead reads the metadata of a pod, and stops after it.
func readHead(pod []byte) (*head, error) {
	h := &head{}
	s := raw.New(pod)
	s.Object(func(key []byte) {
		if string(key) != "metadata" {
			return
		}
		if !s.Null() {
			h.read(s)
		}
		s.Stop()
	})
	if err := s.End(); err != nil {
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	return h, nil
}

func (h *head) read(s *raw.Scanner) {
	h.hasMetadata = true
	generated := false
	defer func() {
		if generated {
			h.name = ""
		}
	}()
	s.Object(func(key []byte) {
		switch string(key) {
		case "name":
			h.name = string(optionalText(s))
		case "generateName":
			generated = len(optionalText(s)) > 0
		case "labels":
			h.readLabels(s)
		case "annotations":
			h.readAnnotations(s)
		}
	})
}

// readLabels reads the labels as substrings of one string. This saves allocations: pods have many labels and are
// created often.
func (h *head) readLabels(s *raw.Scanner) {
	h.labels = nil
	if s.Null() {
		return
	}
	var space [1024]byte
	var places [16][2]int
	text, ends := space[:0], places[:0]
	s.Object(func(key []byte) {
		text = append(text, key...)
		middle := len(text)
		text = append(text, optionalText(s)...)
		ends = append(ends, [2]int{middle, len(text)})
	})
	h.labels = make(podLabels, len(ends))
	all, start := string(text), 0
	for i, end := range ends {
		h.labels[i] = label{key: all[start:end[0]], value: all[end[0]:end[1]]}
		start = end[1]
	}
}

func (h *head) readAnnotations(s *raw.Scanner) {
	h.annotations, h.size, h.hasAnnotated = nil, 0, false
	if s.Null() {
		return
	}
	h.hasAnnotated = true
	s.Object(func(key []byte) {
		value := optionalText(s)
		h.size += len(key) + len(value)
		if meansSomething(key) {
			h.annotations = append(h.annotations, annotation{key: string(key), value: string(value)})
		}
	})
}

// optionalText reads a string; null counts as the empty string.
func optionalText(s *raw.Scanner) []byte {
	if s.Null() {
		return nil
	}
	return s.Text()
}

// meansSomething reports whether this package reads or writes the annotation with this key.
func meansSomething(key []byte) bool {
	switch string(key) {
	case refractv1beta1.InjectAnnotation, refractv1beta1.ExcludeAnnotation, refractv1beta1.InjectionAnnotation,
		refractv1beta1.HashAnnotation, corev1.MirrorPodAnnotationKey:
		return true
	default:
		return len(key) > len(refractv1beta1.ServicePrefix) &&
			string(key[:len(refractv1beta1.ServicePrefix)]) == refractv1beta1.ServicePrefix
	}
}

// annotation returns the value of an annotation, and whether it exists.
func (h *head) annotation(key string) (string, bool) {
	if len(h.annotations) > few {
		if h.values == nil {
			h.values = make(map[string]string, len(h.annotations))
			for _, a := range slices.Backward(h.annotations) { // Of duplicate keys, the first one counts.
				h.values[a.key] = a.value
			}
		}
		value, there := h.values[key]
		return value, there
	}
	for i := range h.annotations {
		if h.annotations[i].key == key {
			return h.annotations[i].value, true
		}
	}
	return "", false
}

// templateHash returns the value of the annotation refract.dev/injection-hash.
func (h *head) templateHash() string {
	hash, _ := h.annotation(refractv1beta1.HashAnnotation)
	return hash
}

// record returns the record of the pod; an empty one if the pod has no valid record.
func (h *head) record() *past {
	text, _ := h.annotation(refractv1beta1.InjectionAnnotation)
	if text == "" {
		return &past{}
	}
	record, err := ReadRecord(text)
	if err != nil {
		return &past{} // Another program wrote the annotation, so the earlier additions are unknown.
	}
	return &past{Record: *record}
}

// excluded returns the reason to exclude the pod from injection; nil if it is not excluded.
func (h *head) excluded() *Skipped {
	if _, mirror := h.annotation(corev1.MirrorPodAnnotationKey); mirror {
		return &Skipped{
			Reason:  ReasonMirrorPod,
			Message: "the pod is the mirror of a static pod; nothing can be added to it",
		}
	}
	if value, _ := h.annotation(refractv1beta1.InjectAnnotation); value == "false" {
		return &Skipped{Reason: ReasonOptedOut, Message: "the pod has the annotation " + refractv1beta1.InjectAnnotation + `: "false"`}
	}
	if value, _ := h.annotation(refractv1beta1.ExcludeAnnotation); value == "true" {
		return &Skipped{Reason: ReasonOptedOut, Message: "the pod has the annotation " + refractv1beta1.ExcludeAnnotation + `: "true"`}
	}
	return nil
}
