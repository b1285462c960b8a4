package propagation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// holding is the reason why the deletion of a copy would lose data. A copy with a holding is deleted without approval
// for one cause only: a user deleted exactly its object on the hub.
//
// The decision would be wrong, and a volume lost, if
//   - the hub's garbage collector, a namespace, a type or a restored hub had caused the deletion on the hub, and not
//     a user: each of them has a cause of its own, see [evidence];
//   - the copy belonged to another object of the same name: the deletion names the UID of the copy;
//   - an approval meant other copies: it names the UIDs of all copies, and is used once;
//   - the copy did not show the annotation of its object: Refract reads the annotation of the object first, if the
//     object exists.
type holding string

const (
	holdsNothing holding = ""
	holdsVolume  holding = "it is a volume, whose data would be lost with the copy"
	holdsMarked  holding = "annotation " + refractv1alpha1.KeepAnnotation + " protects the copy"
	holdsByKind  holding = "--keep-kinds protects copies of its kind"
)

// holdingOf returns the holding of a copy. marked is whether its object has the annotation that protects copies.
func holdingOf(of schema.GroupResource, marked bool, kinds KeptKinds) holding {
	switch {
	case placement.IsVolume(of):
		return holdsVolume
	case marked:
		return holdsMarked
	case kinds.has(of):
		return holdsByKind
	default:
		return holdsNothing
	}
}

// waits reports whether a deletion for the cause needs an approval because of the data of the copy.
func (h holding) waits(c cause) bool { return h != holdsNothing && c != causeDeleted }

// says returns the reason why the copy waits, and the remedy.
func (h holding) says(c cause, cluster string) string {
	return fmt.Sprintf("%s; %s. The copy stays until `refract approve %s --delete-volumes`, or until the object is placed here again", c.of(), h, cluster)
}

// saysOfRun returns the reason why the copy of an earlier Job waits, and the remedy.
func (h holding) saysOfRun(cluster string) string {
	return fmt.Sprintf("the cluster still has the Job of this name that was deleted on the hub; %s. It stays, and the new Job does not run there, "+
		"until `refract approve %s --delete-volumes`, or until it is deleted on the cluster", h, cluster)
}

// KeptKinds are the kinds whose copies are deleted without approval only if a user deletes the object on the hub.
type KeptKinds []keptKind

// keptKind is a kind as a user wrote it, with the possible names of its resource.
type keptKind struct {
	text  string
	group string // Empty for all groups.
	names []string
}

func (k *keptKind) is(of schema.GroupResource) bool {
	return slices.Contains(k.names, of.Resource) && (k.group == "" || k.group == of.Group)
}

// mostKeptKinds bounds how many kinds may be named.
const mostKeptKinds = 100

// ParseKeptKinds reads kinds, each as KIND or KIND.GROUP. It also accepts the plural name of the resource. A kind
// without a group means the kinds of this name in all groups. It returns an error for more than 100 kinds, and for a
// text that is no kind.
func ParseKeptKinds(texts []string) (kinds KeptKinds, err error) {
	if len(texts) > mostKeptKinds {
		return nil, fmt.Errorf("want at most %d kinds, got %d", mostKeptKinds, len(texts))
	}
	for _, text := range texts {
		gk := schema.ParseGroupKind(text)
		name := strings.ToLower(gk.Kind)
		if len(validation.IsDNS1035Label(name)) > 0 || gk.Group != "" && len(validation.IsDNS1123Subdomain(gk.Group)) > 0 {
			return nil, fmt.Errorf("%q is no kind: want KIND or KIND.GROUP, as Secret or Deployment.apps", text)
		}
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: gk.Group, Kind: gk.Kind})
		kinds = append(kinds, keptKind{text: text, group: gk.Group, names: []string{plural.Resource, name}})
	}
	return kinds, nil
}

func (k KeptKinds) has(of schema.GroupResource) bool {
	return slices.ContainsFunc(k, func(is keptKind) bool { return is.is(of) })
}

// unserved returns the kinds, as the user wrote them, that match none of the resources. A misspelled kind is among
// them, and protects no copy.
func (k KeptKinds) unserved(resources []schema.GroupResource) (texts []string) {
	for i := range k {
		if !slices.ContainsFunc(resources, k[i].is) {
			texts = append(texts, k[i].text)
		}
	}
	return texts
}
