package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Apply writes an object by server-side apply: it is as given then, and has no
// field that Apply gave it before and does not any more.
func Apply(ctx context.Context, c client.Client, object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// ApplyAll applies the documents of a manifest, in order.
func ApplyAll(ctx context.Context, c client.Client, manifest string) error {
	docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := map[string]any{}
		err := docs.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(object) == 0 {
			continue
		}
		if err := Apply(ctx, c, object); err != nil {
			return err
		}
	}
}

// DeleteCRD deletes a CustomResourceDefinition, if it is there.
func DeleteCRD(ctx context.Context, c client.Client, name string) error {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return client.IgnoreNotFound(c.Delete(ctx, crd))
}
