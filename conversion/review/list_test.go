package review

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/structural/pipeline"
)

// relabel returns an answer with all objects of a request, in which only the apiVersion is changed.
func relabel(t *testing.T, request map[string]any) string {
	t.Helper()
	objects, _ := request["objects"].([]any)
	for _, o := range objects {
		if object, ok := o.(map[string]any); ok {
			object["apiVersion"] = request["desiredAPIVersion"]
		}
	}
	text, err := json.Marshal(objects)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview",
		"response":{"uid":"UID","result":{"status":"Success"},"convertedObjects":%s}}`, text)
}

// TestConvertAll checks that one review has all objects in another version, and that the results are in order. With
// Insecure, no authority is necessary.
func TestConvertAll(t *testing.T) {
	var asked []int
	hook := serve(t, func(request map[string]any) (int, string) {
		objects, _ := request["objects"].([]any)
		asked = append(asked, len(objects))
		return http.StatusOK, relabel(t, request)
	})
	hook.Authority, hook.Insecure = nil, true
	c, err := NewConverter(compiled(t), nil, hook)
	if err != nil {
		t.Fatal(err)
	}
	objects := []map[string]any{parse(t, oven), parse(t, oven), parse(t, oven)}
	objects[1]["apiVersion"] = "example.com/v2"
	want := make([]map[string]any, len(objects))
	for i := range objects {
		objects[i]["spec"] = map[string]any{"number": int64(i)}
		want[i] = maps.Clone(objects[i])
		want[i]["apiVersion"] = "example.com/v2"
	}
	before := parse(t, string(must(t, objects[0])))
	got, err := c.ConvertAll(t.Context(), objects, "example.com/v2")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{2}, asked); diff != "" {
		t.Errorf("objects in reviews: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, objects[0]); diff != "" {
		t.Errorf("ConvertAll changed its input: -before, +after:\n%s", diff)
	}
	if none, err := c.ConvertAll(t.Context(), nil, "example.com/v2"); len(none) != 0 || err != nil || len(asked) != 1 {
		t.Errorf("ConvertAll of nothing: %v, %v, %d reviews", none, err, len(asked))
	}
}

// TestConvertAllRefused checks that the whole list fails if the webhook rejects it or omits an object.
func TestConvertAllRefused(t *testing.T) {
	answers := map[string]string{
		"Failure": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview",
			"response":{"uid":"UID","result":{"status":"Failure","message":"nobody burns coal"}}}`,
		"Fewer": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview",
			"response":{"uid":"UID","result":{"status":"Success"},"convertedObjects":[]}}`,
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			c, err := NewConverter(compiled(t), nil, serve(t, func(map[string]any) (int, string) { return http.StatusOK, answer }))
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.ConvertAll(t.Context(), []map[string]any{parse(t, oven), parse(t, oven)}, "example.com/v2")
			if refused := (*pipeline.RefusedError)(nil); !errors.As(err, &refused) || refused.Rule != RuleConversion {
				t.Errorf("error %v, want a refusal", err)
			}
		})
	}
}

func must(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
