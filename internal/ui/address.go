package ui

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// nowhere is in the address of a cluster-scoped object in place of a namespace.
const nowhere = "-"

// objectAddress returns the address of an object's page.
func objectAddress(kind schema.GroupKind, namespace, name string) string {
	return "/object/" + url.PathEscape(kind.String()) + "/" + namespaced(namespace, name)
}

// policyAddress returns the address of a policy's page. It is empty if ref is empty, as for a change by Refract itself.
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

// namespaceIn returns the namespace that a segment of an address names.
func namespaceIn(text string) string {
	if text == nowhere {
		return ""
	}
	return text
}

// kindIn returns the kind that a segment of an address names.
func kindIn(text string) schema.GroupKind {
	kind, group, _ := strings.Cut(text, ".")
	return schema.GroupKind{Group: group, Kind: kind}
}
