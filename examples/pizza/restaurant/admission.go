package restaurant

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/examples/pizza/v1beta1"
	"refract.dev/webhook/admission"
)

// Recommended are the toppings of a pizza that has none, in their order, each once.
var Recommended = [...]string{"tomato", "mozzarella", "salami"}

// Toppings finds toppings by name.
type Toppings interface {
	// Get returns a topping; its namespace is empty. Its error is one that
	// apierrors.IsNotFound knows if the restaurant does not have the topping, and
	// [admission.Unavailable] if that is not known.
	Get(ctx context.Context, namespace, name string) (*v1alpha1.Topping, error)
}

// Defaults are the rules that give a pizza without toppings the recommended ones.
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

// Validations are the rules that refuse a pizza with a topping that the restaurant does
// not have. The refusal names the first of them. What was on a pizza before may stay on
// it: or else nobody could label a pizza, or take a finalizer from it, once one of its
// toppings is off the menu.
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

// names returns the name of each entry.
func names(toppings []v1beta1.PizzaTopping) []string {
	out := make([]string, len(toppings))
	for i := range toppings {
		out[i] = toppings[i].Name
	}
	return out
}

// known returns an error unless the restaurant has all toppings but those before.
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
