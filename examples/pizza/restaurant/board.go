package restaurant

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/kit/webhook/admission"
)

// board finds toppings in a cache, and, because a cache learns of a new topping late, then on the API server.
type board struct {
	cache cache.Cache
	live  client.Reader
}

// Get returns a topping. Only a NotFound error of the API server means that the topping does not exist.
func (b board) Get(ctx context.Context, namespace, name string) (*v1alpha1.Topping, error) {
	if err := b.ready(); err != nil { //nolint:contextcheck // It does not wait.
		return nil, admission.Unavailable(err)
	}
	topping, key := &v1alpha1.Topping{}, client.ObjectKey{Namespace: namespace, Name: name}
	if b.cache.Get(ctx, key, topping) == nil {
		return topping, nil
	}
	err := b.live.Get(ctx, key, topping)
	switch {
	case err == nil:
		return topping, nil
	case apierrors.IsNotFound(err):
		return nil, err
	default:
		return nil, admission.Unavailable(fmt.Errorf("reading topping %q: %w", name, err))
	}
}

// ready returns nil once the cache has all toppings. It does not wait.
func (b board) ready() error {
	informer, err := b.cache.GetInformer(context.Background(), &v1alpha1.Topping{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching toppings: %w", err)
	}
	if !informer.HasSynced() {
		return errors.New("informers not ready")
	}
	return nil
}
