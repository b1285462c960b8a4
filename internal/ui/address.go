package ui

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// nowhere stands in an address for the namespace of what has none.
const nowhere = "-"

// objectAddress is that of the page of an object.
func objectAddress(kind schema.GroupKind, namespace, name string) string {
	return "/object/" + url.PathEscape(kind.String()) + "/" + namespaced(namespace, name)
}

// policyAddress is that of the page of a policy; empty if Refract itself has made a change.
func policyAddress(ref *tree.Policy) string {
	if ref.Kind == "" {
		return ""
	}
	return "/policy/" + url.PathEscape(ref.Kind) + "/" + namespaced(ref.Namespace, ref.Name)
}

func namespaced(namespace, name string) string {
	if namespace == "" {
		namespace = nowhere
	}
	return url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// namespaceIn is the namespace that stands in an address.
func namespaceIn(text string) string {
	if text == nowhere {
		return ""
	}
	return text
}

// kindIn is the kind that stands in an address.
func kindIn(text string) schema.GroupKind {
	kind, group, _ := strings.Cut(text, ".")
	return schema.GroupKind{Group: group, Kind: kind}
}
