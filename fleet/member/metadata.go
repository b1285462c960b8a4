package member

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/tree/raw"
)

// readObjectMeta reads the metadata of an object, except generateName, selfLink and deletionGracePeriodSeconds, which
// Refract does not use. All other fields have the same values as with the decoder of Kubernetes. That decoder takes
// three times as long, and metadata takes most of the time for a watch event. The result does not refer to the data.
func readObjectMeta(data []byte, m *metav1.ObjectMeta) error {
	s := raw.New(data)
	if s.Null() {
		return s.End()
	}
	s.Object(func(key []byte) {
		if s.Null() {
			return
		}
		switch string(key) {
		case "name":
			m.Name = readString(s)
		case "namespace":
			m.Namespace = readString(s)
		case "uid":
			m.UID = types.UID(readString(s))
		case "resourceVersion":
			m.ResourceVersion = readString(s)
		case "generation":
			m.Generation = readInteger(s)
		case "creationTimestamp":
			m.CreationTimestamp = *readTime(s)
		case "deletionTimestamp":
			m.DeletionTimestamp = readTime(s)
		case "labels":
			m.Labels = readStrings(s, m.Labels)
		case "annotations":
			m.Annotations = readStrings(s, m.Annotations)
		case "finalizers":
			m.Finalizers = []string{}
			s.Array(func(int) { m.Finalizers = append(m.Finalizers, readStringOrNull(s)) })
		case "ownerReferences":
			if err := unmarshal(s.Value(), &m.OwnerReferences); err != nil {
				s.Fail(err)
			}
		case "managedFields":
			m.ManagedFields = []metav1.ManagedFieldsEntry{}
			s.Array(func(int) { m.ManagedFields = append(m.ManagedFields, readManager(s)) })
		}
	})
	return s.End()
}

// identityIn reads the name, the namespace, the UID and the resourceVersion from metadata that cannot be read as a
// whole.
func identityIn(data []byte) (m metav1.ObjectMeta) {
	read := func(key string) string {
		value, err := raw.Field(data, key)
		if err != nil || value == nil {
			return ""
		}
		s := raw.New(value)
		text := readString(s)
		if s.End() != nil {
			return ""
		}
		return text
	}
	m.Namespace, m.Name, m.UID, m.ResourceVersion = read("namespace"), read("name"), types.UID(read("uid")), read("resourceVersion")
	return m
}

// readManager reads an entry of managedFields.
func readManager(s *raw.Scanner) (e metav1.ManagedFieldsEntry) {
	if s.Null() {
		return e
	}
	s.Object(func(key []byte) {
		if s.Null() {
			return
		}
		switch string(key) {
		case "manager":
			e.Manager = readString(s)
		case "operation":
			e.Operation = metav1.ManagedFieldsOperationType(readString(s))
		case "apiVersion":
			e.APIVersion = readString(s)
		case "subresource":
			e.Subresource = readString(s)
		case "fieldsType":
			e.FieldsType = readString(s)
		case "time":
			e.Time = readTime(s)
		case "fieldsV1":
			e.FieldsV1 = &metav1.FieldsV1{}
			e.FieldsV1.SetRawBytes(s.Value()) // This copies the value: the next event overwrites the data.
		}
	})
	return e
}

// readString reads a string. Like the decoder of Kubernetes, it replaces invalid UTF-8.
func readString(s *raw.Scanner) string {
	read := string(s.Text())
	if !utf8.ValidString(read) {
		return string([]rune(read))
	}
	return read
}

func readStringOrNull(s *raw.Scanner) string {
	if s.Null() {
		return ""
	}
	return readString(s)
}

// readStrings reads an object whose values are strings, and adds them to the given map.
func readStrings(s *raw.Scanner, into map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	s.Object(func(key []byte) {
		k := string(key)
		if !utf8.ValidString(k) {
			k = string([]rune(k))
		}
		into[k] = readStringOrNull(s)
	})
	return into
}

func readInteger(s *raw.Scanner) int64 {
	value := string(s.Value())
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		s.Fail(fmt.Errorf("want an integer, got %.40s", value))
	}
	return n
}

// readTime reads a time in the format of RFC 3339.
func readTime(s *raw.Scanner) *metav1.Time {
	t, err := time.Parse(time.RFC3339, readString(s))
	if err != nil {
		s.Fail(err)
	}
	return &metav1.Time{Time: t.Local()}
}
