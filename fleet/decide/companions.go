package decide

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// name finds the companions that the annotation of the object names.
func (d *Desired) name(o *Object, w *World) {
	for _, f := range d.Keeping.Followers {
		c := Companion{GroupKind: schema.GroupKind{Group: f.Group, Kind: f.Kind}, Name: f.Name}
		var served bool
		c.Resource, served = w.Resource(c.GroupKind)
		if !placement.Follows(c.GroupKind) {
			continue // The parser of the annotation has warned of it.
		}
		if !served {
			d.warn(fmt.Sprintf("annotation %s: the hub serves no kind %s of group %q", corev1alpha1.FollowersAnnotation, f.Kind, f.Group))
			continue
		}
		if why := placement.Native(c.Resource, &metav1.ObjectMeta{Namespace: o.Content.GetNamespace(), Name: f.Name}); why != "" {
			d.warn(fmt.Sprintf("annotation %s: %s %s does not travel: %s", corev1alpha1.FollowersAnnotation, f.Kind, f.Name, why))
			continue
		}
		if c.Resource == o.Resource && f.Name == o.Content.GetName() {
			continue // An object does not travel with itself.
		}
		d.Companions = append(d.Companions, c)
	}
}
