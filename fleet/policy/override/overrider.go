package override

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// Overrider is one list in the overriders of a rule. Its file has everything about it: the compilation of an item, its
// size and its effect. Code that handles every overrider uses [Overriders].
type Overrider struct {
	// Name is the name of the list in the policy.
	Name string
	// Items returns pointers to the items of the list, such as *corev1alpha1.ImageOverrider.
	Items func(*corev1alpha1.Overriders) []any
	// Remove removes the item with this index from the list.
	Remove func(of *corev1alpha1.Overriders, item int)

	// values returns the number of items and of values in them; they count for [MaxValues].
	values func(*corev1alpha1.Overriders) int
	// compile compiles the items of the list, and reports every mistake at its field path.
	compile func(c *compiler, of *corev1alpha1.Overriders, path *field.Path)
}

// overriders has the overriders in the order of their effect.
var overriders = []Overrider{images, commands, args, environments, annotations, labels, jsonPatches}

// Overriders returns all overriders in the order of their effect. The caller owns the slice.
func Overriders() []Overrider { return slices.Clone(overriders) }

// newOverrider returns an overrider for a list of items of type T. values returns the number of values in an item, and
// compile compiles an item.
func newOverrider[T any](
	name string, list func(*corev1alpha1.Overriders) *[]T, values func(*T) int,
	compile func(by *tree.Author, item *T, path *field.Path) (action, field.ErrorList),
) Overrider {
	return Overrider{
		Name: name,
		Items: func(of *corev1alpha1.Overriders) []any {
			items := *list(of)
			pointers := make([]any, len(items))
			for i := range items {
				pointers[i] = &items[i]
			}
			return pointers
		},
		Remove: func(of *corev1alpha1.Overriders, item int) {
			items := list(of)
			*items = slices.Delete(*items, item, item+1)
		},
		values: func(of *corev1alpha1.Overriders) (n int) {
			items := *list(of)
			for i := range items {
				n += 1 + values(&items[i])
			}
			return n
		},
		compile: func(c *compiler, of *corev1alpha1.Overriders, path *field.Path) {
			items := *list(of)
			for i := range items {
				author := c.author
				author.Overrider, author.Item = name, i
				a, errs := compile(&author, &items[i], path.Child(name).Index(i))
				if len(errs) > 0 {
					c.fail(author, errs)
					continue
				}
				c.rule.steps = append(c.rule.steps, step{author: &author, action: a})
			}
		},
	}
}
