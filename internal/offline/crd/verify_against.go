package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/internal/review"
	"refract.dev/structural/pipeline"
)

// Batches of objects that a webhook is sent, at most: an API server sends a page of a
// list.
const (
	batchObjects = 250
	batchBytes   = 4 << 20
)

// Webhook is what converts at an endpoint: a [verify.Subject], which asks and judges as an
// API server does.
type Webhook struct {
	mu        sync.Mutex
	converter *review.Converter
	failed    error
}

// NewWebhook returns what converts the objects of a definition at an endpoint. The
// versions of reviews are those that the definition says.
func NewWebhook(d *Definition, w review.Webhook) (*Webhook, error) {
	converter, err := review.NewConverter(d.Definition, ConversionOf(&d.Document).ReviewVersions, w)
	if err != nil {
		return nil, err
	}
	return &Webhook{converter: converter}, nil
}

// Err returns why the webhook gave no answer, when it first did not and was not just
// interrupted; nil if it always did. An answer that says no is one.
func (w *Webhook) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Convert returns the objects in an API version, in their order, or none and an error. The
// objects are not modified. A webhook that once gave no answer is not asked again.
func (w *Webhook) Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return nil, w.failed // Nothing is worth knowing any more.
	}
	out := make([][]byte, 0, len(objects))
	for from := 0; from < len(objects); {
		to, size := from, 0
		for to < len(objects) && to-from < batchObjects && (to == from || size+len(objects[to]) <= batchBytes) {
			size += len(objects[to])
			to++
		}
		converted, err := w.batch(ctx, objects[from:to], apiVersion)
		if err != nil {
			if refused := (*pipeline.RefusedError)(nil); !errors.As(err, &refused) && ctx.Err() == nil && w.failed == nil {
				w.failed = err
			}
			return nil, err
		}
		out = append(out, converted...)
		from = to
	}
	return out, nil
}

func (w *Webhook) batch(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	decoded := make([]map[string]any, len(objects))
	for i := range objects {
		if err := utiljson.Unmarshal(objects[i], &decoded[i]); err != nil {
			return nil, fmt.Errorf("decoding an object: %w", err)
		}
	}
	converted, err := w.converter.ConvertAll(ctx, decoded, apiVersion)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(converted))
	for i := range converted {
		if out[i], err = json.Marshal(converted[i]); err != nil {
			return nil, fmt.Errorf("encoding what became of an object: %w", err)
		}
	}
	return out, nil
}
