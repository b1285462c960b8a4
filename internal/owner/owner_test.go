package owner

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// roles is a client that returns a response for each role.
type roles map[string]func(*rbacv1.ClusterRole) error

func (r roles) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if answer, ok := r[key.Name]; ok {
		return answer(into.(*rbacv1.ClusterRole))
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "clusterroles"}, key.Name)
}

func (roles) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func role(uid string, deleted bool) func(*rbacv1.ClusterRole) error {
	return func(r *rbacv1.ClusterRole) error {
		r.Name, r.UID = "a", types.UID(uid)
		if deleted {
			r.DeletionTimestamp = new(metav1.Now())
		}
		return nil
	}
}

func forbidden(*rbacv1.ClusterRole) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, "a", errors.New("no"))
}

func TestReferences(t *testing.T) {
	a := []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "a", UID: "1"}}
	cases := map[string]struct {
		reason        string
		before, after roles
		want          []metav1.OwnerReference
		fails         bool
	}{
		"Installed": {
			reason: "An object of an installation refers to the existing role of its part, and to no missing role.",
			after:  roles{"a": role("1", false)}, want: a,
		},
		"NotInstalled": {reason: "A program that runs without an installation has no owner."},
		"RightMissing": {
			reason: "The roles of an earlier version do not permit reads of themselves. Objects are then written without an owner.",
			after:  roles{"a": forbidden},
		},
		"Again": {
			reason: "A role that was deleted and created again is another object.",
			before: roles{"a": role("0", false)}, after: roles{"a": role("1", false)}, want: a,
		},
		"Deleted": {
			reason: "An object that is written after the deletion of the role would remain.",
			before: roles{"a": role("1", false)}, fails: true,
		},
		"BeingDeleted": {
			reason: "A role that only a finalizer keeps counts as deleted.",
			before: roles{"a": role("1", false)}, after: roles{"a": role("1", true)}, fails: true,
		},
		"RightGone": {
			reason: "With the role, the right to read it disappears, and the API server may report that first.",
			before: roles{"a": role("1", false)}, after: roles{"a": forbidden}, fails: true,
		},
		"Unreachable": {
			reason: "An unknown state of the role is an error.",
			after:  roles{"a": func(*rbacv1.ClusterRole) error { return errors.New("down") }}, fails: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := New(tc.before)
			if _, err := o.References(t.Context(), "a", "b"); err != nil {
				t.Fatal(err)
			}
			o.client = tc.after
			got, err := o.References(t.Context(), "a", "b")
			if (err != nil) != tc.fails {
				t.Errorf("%s\nwant an error: %t, got %v", tc.reason, tc.fails, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// guarded is an API server that rejects owner references.
type guarded struct {
	client.Writer

	err   error
	wrote []int // The number of owners in each write.
}

func (g *guarded) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var is metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &is); err != nil {
		return err
	}
	g.wrote = append(g.wrote, len(is.OwnerReferences))
	if len(is.OwnerReferences) > 0 {
		return g.err
	}
	return nil
}

// TestApply checks that an object is written without owners if the API server rejects them.
func TestApply(t *testing.T) {
	references := []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "a", UID: "1"}}
	cases := map[string]struct {
		reason string
		err    error
		wrote  []int
		fails  bool
	}{
		"Allowed":   {"The object gets its owner.", nil, []int{1}, false},
		"Forbidden": {"If the owner is rejected, the object is written without an owner.", apierrors.NewForbidden(schema.GroupResource{Resource: "a"}, "a", errors.New("cannot set an ownerRef")), []int{1, 0}, false},
		"Down":      {"Any other failure is an error.", errors.New("down"), []int{1}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &guarded{err: tc.err}
			err := Apply(t.Context(), g, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "A"}}, references, "refract")
			if (err != nil) != tc.fails {
				t.Errorf("%s\nwant an error: %t, got %v", tc.reason, tc.fails, err)
			}
			if diff := cmp.Diff(tc.wrote, g.wrote); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
