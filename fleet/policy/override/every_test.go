package override

import (
	"reflect"
	"testing"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// TestEveryOverriderCounts verifies that the limits of a policy cover every list of overriders.
func TestEveryOverriderCounts(t *testing.T) {
	fields := reflect.TypeFor[corev1alpha1.Overriders]()
	for i := range fields.NumField() {
		o := &corev1alpha1.Overriders{}
		list := reflect.ValueOf(o).Elem().Field(i)
		list.Set(reflect.MakeSlice(list.Type(), 1, 1))
		if valuesOf(&corev1alpha1.OverrideRule{Overriders: o}) < 1 {
			t.Errorf("valuesOf() does not count %s: add its overrider to overriders", fields.Field(i).Name)
		}
		filled := false
		for _, value := range list.Index(0).Fields() {
			switch value.Kind() { //nolint:exhaustive // Only these kinds can have many values in an item.
			case reflect.Slice:
				value.Set(reflect.MakeSlice(value.Type(), 3, 3))
				filled = true
			case reflect.Map:
				value.Set(reflect.ValueOf(map[string]string{"a": "1", "b": "2", "c": "3"}))
				filled = true
			}
		}
		if n := valuesOf(&corev1alpha1.OverrideRule{Overriders: o}); filled && n < 4 {
			t.Errorf("valuesOf() counts %d values for an item with three in %s", n, fields.Field(i).Name)
		}
	}
}
