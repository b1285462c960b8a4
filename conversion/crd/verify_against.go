package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/conversion/review"
	"refract.dev/conversion/structural/pipeline"
)

// Limits of the objects in one review. An API server also sends several objects, a page of a list, in one review.
const (
	batchObjects = 250
	batchBytes   = 4 << 20
)

// Webhook is a [verify.Subject] that converts objects with a conversion webhook. It sends the same requests as an API
// server, and checks the answers in the same way.
type Webhook struct {
	mu        sync.Mutex
	converter *review.Converter
	failed    error
}

// NewWebhook returns a Webhook for the objects of a definition. The definition has the versions of the reviews.
func NewWebhook(d *Definition, w review.Webhook) (*Webhook, error) {
	converter, err := review.NewConverter(d.Definition, ConversionOf(&d.Document).ReviewVersions, w)
	if err != nil {
		return nil, err
	}
	return &Webhook{converter: converter}, nil
}

// Err returns the first error of a call that the webhook did not answer; nil if it answered all calls. A Failure in the
// answer is an answer. Errors after the end of the context are ignored.
func (w *Webhook) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Convert returns the objects in an API version, in the same order. After an error it returns no objects. The objects
// are not modified. After the first call without an answer, the webhook is not called again.
func (w *Webhook) Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return nil, w.failed // The comparison cannot be completed.
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
			return nil, fmt.Errorf("encoding the result for an object: %w", err)
		}
	}
	return out, nil
}
