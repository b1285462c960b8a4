package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TypesRole is the ClusterRole with the types that the hub's account may list and watch. Only these types can be
// propagated.
const TypesRole = "refract-hub-types"

// resourceName matches the name of a resource, or a star for all resources of a group. It does not match subresources,
// which are never propagated.
var resourceName = regexp.MustCompile(`^([*]|[a-z]([a-z0-9-]*[a-z0-9])?)$`)

// ParseTypes parses types as kubectl writes them, RESOURCE.GROUP. A star means every type.
func ParseTypes(texts []string) ([]schema.GroupResource, error) {
	types := make([]schema.GroupResource, len(texts))
	for i, text := range texts {
		t := schema.ParseGroupResource(text)
		if text == "*" {
			t.Group = "*"
		}
		if !resourceName.MatchString(t.Resource) || t.Group != "" && t.Group != "*" && len(validation.IsDNS1123Subdomain(t.Group)) > 0 {
			return nil, fmt.Errorf("%q is no type: want RESOURCE.GROUP, such as deployments.apps or configmaps, or *", text)
		}
		types[i] = t
	}
	return types, nil
}

// withTypes returns the manifest of TypesRole with rules for these types.
func withTypes(manifest []byte, types []schema.GroupResource) ([]byte, error) {
	var rules []rbacv1.PolicyRule
	for _, t := range types {
		i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return r.APIGroups[0] == t.Group })
		if i < 0 {
			i = len(rules)
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{t.Group}, Verbs: []string{"list", "watch"}})
		}
		if !slices.Contains(rules[i].Resources, t.Resource) {
			rules[i].Resources = append(rules[i].Resources, t.Resource)
		}
	}
	text, err := yaml.Marshal(map[string]any{"rules": rules})
	if err != nil {
		return nil, err
	}
	at := bytes.Index(manifest, []byte("\nrules:\n"))
	if at < 0 {
		return nil, errors.New("the role has no rules")
	}
	return slices.Concat(manifest[:at+1], text), nil
}

// KeepTypes returns the objects without TypesRole if this role exists in the cluster. So an upgrade does not change the
// types that can be propagated.
func KeepTypes(ctx context.Context, c client.Reader, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	err := c.Get(ctx, client.ObjectKey{Name: TypesRole}, &rbacv1.ClusterRole{})
	switch {
	case apierrors.IsNotFound(err):
		return objects, nil
	case err != nil:
		return nil, fmt.Errorf("reading clusterrole %s: %w", TypesRole, err)
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ClusterRole" && o.GetName() == TypesRole
	}), nil
}
