package restaurant

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/examples/pizza/v1beta1"
	"refract.dev/kit/webhook/admission"
)

// Recommended are the toppings for a pizza without toppings, in order, each once.
var Recommended = [...]string{"tomato", "mozzarella", "salami"}

// Toppings finds toppings by name.
type Toppings interface {
	// Get returns a topping; the namespace is empty. If the restaurant does not have the topping, apierrors.IsNotFound
	// accepts the error. If this is not known, the error is an [admission.Unavailable].
	Get(ctx context.Context, namespace, name string) (*v1alpha1.Topping, error)
}

// Defaults returns the rules that give a pizza without toppings the recommended ones.
func Defaults() []admission.Rule {
	return []admission.Rule{
		admission.Default(v1alpha1.GroupVersion.String(), "Pizza",
			func(_ context.Context, _ *admission.Request, p *v1alpha1.Pizza) error {
				if len(p.Spec.Toppings) == 0 {
					p.Spec.Toppings = slices.Clone(Recommended[:])
				}
				return nil
			}),
		admission.Default(v1beta1.GroupVersion.String(), "Pizza",
			func(_ context.Context, _ *admission.Request, p *v1beta1.Pizza) error {
				if len(p.Spec.Toppings) == 0 {
					for _, name := range Recommended {
						p.Spec.Toppings = append(p.Spec.Toppings, v1beta1.PizzaTopping{Name: name, Quantity: 1})
					}
				}
				return nil
			}),
	}
}

// Validations returns the rules that reject a pizza with a topping that the restaurant does not have. The error names
// the first such topping. Toppings that the pizza had before may stay. Otherwise users could not label a pizza, or
// remove its finalizers, after one of its toppings is off the menu.
func Validations(toppings Toppings) []admission.Rule {
	return []admission.Rule{
		admission.Validate(v1alpha1.GroupVersion.String(), "Pizza",
			func(ctx context.Context, _ *admission.Request, p, old *v1alpha1.Pizza) ([]string, error) {
				var before []string
				if old != nil {
					before = old.Spec.Toppings
				}
				return nil, known(ctx, toppings, p.Spec.Toppings, before)
			}),
		admission.Validate(v1beta1.GroupVersion.String(), "Pizza",
			func(ctx context.Context, _ *admission.Request, p, old *v1beta1.Pizza) ([]string, error) {
				var before []string
				if old != nil {
					before = names(old.Spec.Toppings)
				}
				return nil, known(ctx, toppings, names(p.Spec.Toppings), before)
			}),
	}
}

// names returns the names of the toppings.
func names(toppings []v1beta1.PizzaTopping) []string {
	out := make([]string, len(toppings))
	for i := range toppings {
		out[i] = toppings[i].Name
	}
	return out
}

// known returns an error unless the restaurant has all toppings except those in before.
func known(ctx context.Context, toppings Toppings, all, before []string) error {
	asked := make(map[string]bool, len(before))
	for _, name := range before {
		asked[name] = true
	}
	for _, name := range all {
		if asked[name] {
			continue
		}
		asked[name] = true
		_, err := toppings.Get(ctx, "", name)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("topping %q not known", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
