package propagation

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestEvidence: requested deletions are distinguished from others.
func TestEvidence(t *testing.T) {
	cases := map[string]struct {
		reason string
		evidence
		want cause
	}{
		"Deleted":            {"A watch reported the deletion. The namespace and the type still exist.", evidence{found: causeMissing, watched: true, known: true}, causeDeleted},
		"BeingDeleted":       {"The object has a deletionTimestamp, also after a restart.", evidence{found: causeDeleted, known: true}, causeDeleted},
		"Unlabelled":         {"A watch by label reports a deletion, but the object exists: it lost the label.", evidence{found: causeWithdrawn, watched: true, known: true}, causeWithdrawn},
		"Unreferenced":       {"The object that referred to it was edited, or lost its label.", evidence{found: causeWithdrawn, known: true}, causeWithdrawn},
		"WithItsLeaders":     {"All objects that it travelled with were deleted by calls, so the follower counts as deleted.", evidence{found: causeWithdrawn, known: true, followed: true}, causeLeader},
		"Owned":              {"The object had an owner: the hub's garbage collector deletes by calls, too.", evidence{found: causeMissing, watched: true, known: true, owned: true}, causeOwner},
		"OwnedFinalizer":     {"The same for an object with finalizers.", evidence{found: causeDeleted, known: true, owned: true}, causeOwner},
		"Relist":             {"A list does not contain the object, and no watch reported its deletion.", evidence{found: causeMissing, known: true}, causeMissing},
		"Namespace":          {"The namespace is being deleted, so the namespace controller deletes the object by a call.", evidence{found: causeMissing, watched: true, around: causeNamespace, known: true}, causeNamespace},
		"NamespaceFinalizer": {"The same for an object with finalizers.", evidence{found: causeDeleted, around: causeNamespace, known: true}, causeNamespace},
		"Definition":         {"The CustomResourceDefinition is being deleted, and its objects with it.", evidence{found: causeMissing, watched: true, around: causeType, known: true}, causeType},
		"TypeGone":           {"The type is not served any more, because its definition is gone.", evidence{found: causeType, known: true}, causeType},
		"NobodySays":         {"The state of the namespace is unknown, so a user's request is not certain.", evidence{found: causeMissing, watched: true, around: causeMissing, known: true}, causeMissing},
		"Forgotten":          {"A hub restored from a backup has neither the object nor the Propagation.", evidence{found: causeMissing}, causeForgotten},
		"ForgottenNamespace": {"The hub does not have the namespace either.", evidence{found: causeMissing, around: causeNamespace}, causeForgotten},
		"ForgottenLabel":     {"Or it has the object in a state before it got the label.", evidence{found: causeWithdrawn}, causeForgotten},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.cause(); got != tc.want {
				t.Errorf("%s\ncause(): want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}

// TestAround: when a watch reports the deletion of an object, its namespace and its type show whether they were
// deleted, too.
func TestAround(t *testing.T) {
	born, later := metav1.Unix(1000, 0), metav1.Unix(2000, 0)
	holder := func(apiVersion, kind, name string, made metav1.Time, deleted bool) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		u.SetName(name)
		u.SetCreationTimestamp(made)
		if deleted {
			u.SetDeletionTimestamp(&later)
			u.SetFinalizers([]string{"a/b"})
		}
		return u
	}
	shop := func(made metav1.Time, deleted bool) *unstructured.Unstructured {
		return holder("v1", "Namespace", "shop", made, deleted)
	}
	gears := func(deleted bool) *unstructured.Unstructured {
		return holder("apiextensions.k8s.io/v1", "CustomResourceDefinition", "gears.example.com", metav1.Unix(900, 0), deleted)
	}
	gear := keyOf("gears", "x")
	gear.Group = "example.com"
	role := keyOf("clusterroles", "x")
	role.Group, role.Namespace = "rbac.authorization.k8s.io", ""
	cases := map[string]struct {
		reason  string
		key     Key
		hub     []*unstructured.Unstructured
		refused bool
		unknown bool // Whether the creation time of the object is unknown.
		want    cause
	}{
		"Whole":         {reason: "The namespace has not changed.", key: keyOf("configmaps", "x"), hub: []*unstructured.Unstructured{shop(born, false)}},
		"Terminating":   {reason: "The namespace is being deleted.", key: keyOf("configmaps", "x"), hub: []*unstructured.Unstructured{shop(born, true)}, want: causeNamespace},
		"Gone":          {reason: "The namespace is gone.", key: keyOf("configmaps", "x"), want: causeNamespace},
		"Again":         {reason: "The namespace was recreated: it is younger than the object.", key: keyOf("configmaps", "x"), hub: []*unstructured.Unstructured{shop(later, false)}, want: causeNamespace},
		"Unknown":       {reason: "The creation time of an object that no watch reported is unknown.", key: keyOf("configmaps", "x"), hub: []*unstructured.Unstructured{shop(later, false)}, unknown: true},
		"ClusterScoped": {reason: "A ClusterRole has no namespace, and its type has no definition.", key: role},
		"Custom":        {reason: "The definition of the custom resource exists.", key: gear, hub: []*unstructured.Unstructured{shop(born, false), gears(false)}},
		"Definition":    {reason: "The definition is being deleted.", key: gear, hub: []*unstructured.Unstructured{shop(born, false), gears(true)}, want: causeType},
		"NoDefinition":  {reason: "The definition is gone.", key: gear, hub: []*unstructured.Unstructured{shop(born, false)}, want: causeType},
		"Refused":       {reason: "The hub does not answer, so the question stays open.", key: keyOf("configmaps", "x"), refused: true, want: causeMissing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			for _, u := range tc.hub {
				objects = append(objects, u)
			}
			dyn := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				namespaceResource: "NamespaceList", crdResource: "CustomResourceDefinitionList",
			}, objects...)
			if tc.refused {
				dyn.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "shop", nil)
				})
			}
			s := &sources{dynamic: dyn, defined: map[string]bool{"gears.example.com": true}}
			told := &deletion{created: metav1.NewTime(born.Add(time.Minute))}
			if tc.unknown {
				told = nil
			}
			got, err := s.around(t.Context(), tc.key, told)
			if err != nil || got != tc.want {
				t.Errorf("%s\naround(): want %q, got %q, %v", tc.reason, tc.want, got, err)
			}
		})
	}
}

// TestDeletionsAreNoted: the sources keep a deletion that a watch reported until it is noted, and no longer.
func TestDeletionsAreNoted(t *testing.T) {
	var told []Key
	s := &sources{deletions: map[Key]*deletion{}, notify: func(key Key, _ bool) { told = append(told, key) }}
	key := keyOf("configmaps", "x")
	v := s.viewOf(key.GroupResource)
	obj := &unstructured.Unstructured{}
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	steps := []struct {
		reason string
		do     func() error
		want   bool
	}{
		{"It came.", func() error { return v.Add(obj) }, false},
		{"A list does not contain the object, but no watch reported a deletion.", func() error { return v.Replace(nil, "") }, false},
		{"The object was created again and deleted.", func() error {
			if err := v.Add(obj); err != nil {
				return err
			}
			return v.Delete(obj)
		}, true},
		{"An older deletion was noted.", func() error { s.noted(key, &deletion{}); return nil }, true},
		{"This one was noted.", func() error { s.noted(key, s.deletion(key)); return nil }, false},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := s.deletion(key) != nil; got != step.want {
			t.Errorf("step %d: %s\ndeletion(): want one %t, got %t", i, step.reason, step.want, got)
		}
	}
	if len(told) != 4 {
		t.Errorf("want the key enqueued after each of 4 events, was %d times", len(told))
	}
}

// TestFollowersAreDeletedWithTheirLeaders: an object whose leaders (the objects that it travels with) were all deleted
// counts as deleted.
func TestFollowersAreDeletedWithTheirLeaders(t *testing.T) {
	l := newState()
	asked, unasked, there := keyOf("deployments", "asked"), keyOf("deployments", "unasked"), keyOf("deployments", "there")
	l.setDesired(asked, &desiredState{gone: true, cause: causeDeleted}, previous{}, nil)
	l.setDesired(unasked, &desiredState{gone: true, cause: causeWithdrawn}, previous{}, nil)
	l.setDesired(there, &desiredState{}, previous{}, nil)
	cases := map[string]struct {
		reason string
		keys   []Key
		want   bool
	}{
		"Nothing":   {"The object travelled with none.", nil, false},
		"Deleted":   {"All leaders were deleted.", []Key{asked}, true},
		"Withdrawn": {"One leader lost its label.", []Key{asked, unasked}, false},
		"There":     {"One leader exists, and does not refer to the object any more.", []Key{asked, there}, false},
		"Unknown":   {"The fate of one leader is unknown.", []Key{asked, keyOf("deployments", "other")}, false},
	}
	for name, tc := range cases {
		if got := l.deleted(tc.keys); got != tc.want {
			t.Errorf("%s: %s\ndeleted(): want %t, got %t", name, tc.reason, tc.want, got)
		}
	}
}

// TestCausesAreRemembered: a cause outlasts decisions and restarts, until the object exists again.
func TestCausesAreRemembered(t *testing.T) {
	gone := &desiredState{gone: true, cause: causeDeleted, of: "u-1"}
	was := gone.remember(previous{uid: "u-1"})
	if was.cause != causeDeleted || was.uid != "u-1" {
		t.Errorf("remember() of an object that is gone: want its cause and UID, got %+v", was)
	}
	condition := sourceGone(gone)
	if condition == nil {
		t.Fatal("sourceGone() of an object that is gone: want a condition")
	}
	if got := causeIn([]metav1.Condition{*condition}); got != causeDeleted {
		t.Errorf("causeIn() of a condition from sourceGone(): want %s, got %q", causeDeleted, got)
	}
	condition.Reason = string(causeLeaves)
	if got := causeIn([]metav1.Condition{*condition}); got != "" {
		t.Errorf("causeIn() of another condition: want nothing, got %q", got)
	}
	there := &desiredState{uid: "u-2"}
	if now := there.remember(was); now.cause != "" || sourceGone(there) != nil {
		t.Errorf("an object that exists again: want no cause, got %q", now.cause)
	}
	d := &decider{records: &records{items: map[Key]*known{}}, state: newState()}
	got, err := d.whyGone(t.Context(), Key{}, nil, causeMissing, nil, &was, true)
	if err != nil || got != causeDeleted {
		t.Errorf("whyGone() with a recorded cause: want %s, got %q, %v", causeDeleted, got, err)
	}
	got, err = d.whyGone(t.Context(), keyOf("persistentvolumeclaims", "data"), nil, causeWithdrawn, nil, &was, false)
	if err != nil || got != causeWithdrawn {
		t.Errorf("whyGone() of an existing object that a former version recorded as deleted: want %s, got %q, %v", causeWithdrawn, got, err)
	}
}
