package review

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/conversion/structural/pipeline"
)

// ConvertAll converts objects to another version like [Converter.Convert], and returns them in the same order. One
// review has all objects that do not have this version yet. The objects are not modified.
func (c *Converter) ConvertAll(ctx context.Context, objects []map[string]any, toAPIVersion string) ([]map[string]any, error) {
	to, err := schema.ParseGroupVersion(toAPIVersion)
	if err != nil {
		return nil, fmt.Errorf("reading the version to convert to: %w", err)
	}
	if len(objects) == 0 {
		return nil, nil
	}
	// The converter of an API server expects the wanted version in the apiVersion of the list.
	kind, _ := objects[0]["kind"].(string)
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": toAPIVersion, "kind": kind + "List"}}
	for _, object := range objects {
		list.Items = append(list.Items, unstructured.Unstructured{Object: object})
	}
	out, err := c.ask(ctx, list, to)
	if err != nil {
		return nil, err
	}
	converted, ok := out.(*unstructured.UnstructuredList)
	if !ok || len(converted.Items) != len(objects) {
		return nil, &pipeline.RefusedError{Rule: RuleConversion, Message: fmt.Sprintf("unexpected answer of type %T", out)}
	}
	all := make([]map[string]any, len(objects))
	for i := range converted.Items {
		all[i] = converted.Items[i].Object
	}
	return all, nil
}

// ask sends an object or a list to the webhook, and checks the answer.
func (c *Converter) ask(ctx context.Context, in runtime.Object, to schema.GroupVersion) (runtime.Object, error) {
	out, err := within(ctx, func() (runtime.Object, error) { return c.converter.ConvertToVersion(in, to) })
	if ctx.Err() != nil {
		return nil, c.webhook.unreachable(context.Cause(ctx))
	}
	if silent := c.witness.unreachable(); silent != nil {
		return nil, c.webhook.unreachable(silent)
	}
	if err != nil {
		return nil, &pipeline.RefusedError{Rule: RuleConversion, Message: err.Error()}
	}
	return out, nil
}
