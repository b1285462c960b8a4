package propagation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestReadBack: a replica that begins to lead takes all facts from the same version of a Propagation, even if the
// former leader has written the Propagation again before.
func TestReadBack(t *testing.T) {
	key := keyOf("configmaps", "web")
	type said struct {
		UID     types.UID
		Hash    string
		Follows []Key
	}
	deployment := Key{GroupResource: deployments.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: "db"}}
	first, none := said{"1", "first", []Key{deployment}}, said{}
	for name, tc := range map[string]struct {
		reason string
		how    telling   // The source of the first version.
		uid    types.UID // The UID of the second version.
		taken  bool
		want   said
	}{
		"Newer":   {"The later version counts.", firstListed, "r", false, said{UID: "2"}},
		"Taken":   {"This replica knows more than the Propagation.", firstListed, "r", true, none},
		"NotOld":  {"This replica knew the object before the Propagation.", told, "r", false, none},
		"Another": {"A recreated Propagation has no status at first.", firstListed, "r2", false, said{"2", first.Hash, first.Follows}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := hubOf(t)
			c := station(t, s, &replica{}, interceptor.Funcs{})
			before, after := recordOn("1"), recordOn("2")
			before.ResourceVersion, after.UID = "1", tc.uid
			before.Status.PlacementHash = first.Hash
			before.Status.Follows = []refractv1alpha1.FollowedObject{{Resource: "deployments.apps", Name: deployment.Name}}
			one, _ := recordOf(before)
			c.decider.records.update(one, tc.how)
			if tc.taken {
				c.decider.records.taken(key)
			}
			for _, after.ResourceVersion = range []string{"2", "3"} {
				other, _ := recordOf(after.DeepCopy())
				c.decider.records.update(other, told)
			}
			was := c.decider.reported(key)
			if diff := cmp.Diff(tc.want, said{was.uid, was.hash, was.follows}); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
