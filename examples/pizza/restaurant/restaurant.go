package restaurant

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/conversion/convert"
	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/examples/pizza/v1beta1"
	"refract.dev/kit/webhook"
	"refract.dev/kit/webhook/admission"
	"refract.dev/kit/webhook/conversion"
)

// Paths of the endpoints. Each answers reviews of the versions v1 and v1beta1, although the path names only v1beta1:
// the paths are those of the book.
const (
	ConvertPath  = "/convert/v1beta1/pizza"
	AdmitPath    = "/admit/v1beta1/pizza"
	ValidatePath = "/validate/v1beta1/pizza"
)

// Options has the connections of the restaurant.
type Options struct {
	// Config is the connection to the API server with the toppings. Required.
	Config *rest.Config
	// Server is the server that gets the endpoints. It must not serve yet. Required.
	Server *webhook.Server
	// Metrics, if set, counts the conversions.
	Metrics prometheus.Registerer
	// Log gets a line for each request at level 4, and the errors that prevent the toppings from being read.
	Log logr.Logger
}

// Restaurant reads the toppings.
type Restaurant struct {
	cache cache.Cache
}

// New adds the three endpoints to a server. The server is not ready until the toppings are known or 10 seconds have
// passed. Without toppings, pizzas are converted, but neither accepted nor rejected: the failurePolicy decides.
func New(o Options) (*Restaurant, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	live, err := client.New(o.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	toppings, err := cache.New(o.Config, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, fmt.Errorf("building a cache: %w", err)
	}
	engine, err := convert.New(Resource())
	if err != nil {
		return nil, err
	}
	known := board{cache: toppings, live: live}
	endpoints := map[string]http.Handler{
		ConvertPath:  conversion.Handler(engine, conversion.Options{Metrics: o.Metrics, Log: o.Log}),
		AdmitPath:    admission.Mutating(Defaults()...),
		ValidatePath: admission.Validating(Validations(known)...),
	}
	for path, handler := range endpoints {
		o.Server.Handle(path, logged(handler, o.Log.V(requests)))
	}
	o.Server.AddReadiness("toppings", patient(known.ready, patience, o.Log))
	return &Restaurant{cache: toppings}, nil
}

// Start watches the toppings until ctx ends.
func (r *Restaurant) Start(ctx context.Context) error { return r.cache.Start(ctx) }
