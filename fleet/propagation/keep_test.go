package propagation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestHolding: a copy that holds data is deleted without approval for one cause only. The guard judges other copies
// by their number.
func TestHolding(t *testing.T) {
	all := []cause{
		causeDeleted, causeLeader, causeOwner, causeWithdrawn, causeNamespace, causeType, causeMissing, causeForgotten, causePlacement, causeLeaves,
	}
	allBut := []cause{causeLeader, causeOwner, causeWithdrawn, causeNamespace, causeType, causeMissing, causeForgotten, causePlacement, causeLeaves}
	kinds, err := ParseKeptKinds([]string{"Secret", "Widget.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		of     schema.GroupResource
		marked bool
		want   []cause // Causes for which the copy waits.
	}{
		"Claim":      {"The data of a claim are lost with it.", schema.GroupResource{Resource: "persistentvolumeclaims"}, false, allBut},
		"Volume":     {"The same for a volume.", schema.GroupResource{Resource: "persistentvolumes"}, false, allBut},
		"OtherGroup": {"A type is named by its group, too.", schema.GroupResource{Group: "example.com", Resource: "persistentvolumes"}, false, nil},
		"ConfigMap":  {"The hub has the same data.", schema.GroupResource{Resource: "configmaps"}, false, nil},
		"Marked":     {"The annotation of its object protects it.", schema.GroupResource{Resource: "configmaps"}, true, allBut},
		"Kind":       {"An administrator protects the kind.", schema.GroupResource{Resource: "secrets"}, false, allBut},
		"Custom":     {"The same for a custom resource.", schema.GroupResource{Group: "example.com", Resource: "widgets"}, false, allBut},
		"Others":     {"The kind of another group is not protected.", schema.GroupResource{Group: "example.org", Resource: "widgets"}, false, nil},
	}
	for name, tc := range cases {
		var got []cause
		for _, c := range all {
			if holdingOf(tc.of, tc.marked, kinds).waits(c) {
				got = append(got, c)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s\ncauses for which it waits: -want, +got:\n%s", name, tc.reason, diff)
		}
	}
}

func TestParseKeptKinds(t *testing.T) {
	resource := func(group, name string) schema.GroupResource {
		return schema.GroupResource{Group: group, Resource: name}
	}
	cases := map[string]struct {
		reason string
		text   string
		has    schema.GroupResource
		err    string
	}{
		"Kind":     {reason: "A kind of the core group.", text: "Secret", has: resource("", "secrets")},
		"AnyGroup": {reason: "A kind without a group means all groups.", text: "Deployment", has: resource("apps", "deployments")},
		"Group":    {reason: "A kind with its group.", text: "Ingress.networking.k8s.io", has: resource("networking.k8s.io", "ingresses")},
		"Resource": {reason: "The name of a resource whose plural cannot be guessed.", text: "chefs-d-oeuvre.example.com", has: resource("example.com", "chefs-d-oeuvre")},
		"Plural":   {reason: "The name of a resource.", text: "secrets", has: resource("", "secrets")},
		"Empty":    {reason: "The text is empty.", text: "", err: `"" is no kind: want KIND or KIND.GROUP, as Secret or Deployment.apps`},
		"Slash":    {reason: "A version is not allowed.", text: "apps/v1", err: `"apps/v1" is no kind: want KIND or KIND.GROUP, as Secret or Deployment.apps`},
	}
	for name, tc := range cases {
		kinds, err := ParseKeptKinds([]string{tc.text})
		if err != nil || tc.err != "" {
			if err == nil || err.Error() != tc.err {
				t.Errorf("%s: %s\nParseKeptKinds(): want error %q, got %v", name, tc.reason, tc.err, err)
			}
			continue
		}
		if !kinds.has(tc.has) {
			t.Errorf("%s: %s\nParseKeptKinds(%q) = %v: want %s to be among them", name, tc.reason, tc.text, kinds, tc.has)
		}
	}
	if _, err := ParseKeptKinds(make([]string, mostKeptKinds+1)); err == nil {
		t.Error("ParseKeptKinds() of too many: want an error")
	}
}

func TestUnservedKinds(t *testing.T) {
	kinds, err := ParseKeptKinds([]string{"Secret", "Secrett", "Deployment.example.com", "Widget"})
	if err != nil {
		t.Fatal(err)
	}
	served := []schema.GroupResource{{Resource: "secrets"}, {Group: "apps", Resource: "deployments"}, {Group: "example.com", Resource: "widgets"}}
	if diff := cmp.Diff([]string{"Secrett", "Deployment.example.com"}, kinds.unserved(served)); diff != "" {
		t.Errorf("unserved(): -want, +got:\n%s", diff)
	}
}

// TestGuardOfKept: copies that hold data wait separately. They delay no others, and an approval of other deletions does
// not approve theirs.
func TestGuardOfKept(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	before := token(t, g)
	kept := removal{Key: keyOf("persistentvolumeclaims", "data"), uid: "u", cause: causeLeader, needsApproval: true}
	if got, _ := g.ask(kept, of(40), ""); got != deny {
		t.Fatalf("ask() of a claim: want deny, got %v", got)
	}
	held, _, _ := g.show()
	others := held.OthersToken
	if held.HoldData != 1 || others != before || held.Token == before {
		t.Errorf("show() = %+v: want one volume, the former token for the others, and another one for all", held)
	}
	if got, _ := g.ask(kept, of(40), others); got != deny {
		t.Errorf("ask() of the claim after the others are approved: want deny, got %v", got)
	}
	if got, _ := g.ask(removal{Key: numbered(1)}, of(40), others); got != allow {
		t.Errorf("ask() of one of the others: want allow, got %v", got)
	}
	if held, _, _ := g.show(); held.HoldData != 1 || held.OthersToken != "" || held.Copies != 1 || held.Of != 40 {
		t.Errorf("show() when only the claim is left: %+v", held)
	}
	elsewhere := numbered(50)
	elsewhere.Namespace = "other"
	g.ask(removal{Key: elsewhere}, of(40), "")
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: elsewhere}, of(40), ""); got != allow {
		t.Errorf("ask() of a copy of another namespace: want allow, got %v", got)
	}
	approved := token(t, g)
	if got, _ := g.ask(kept, of(40), approved); got != allow {
		t.Errorf("ask() of the claim after its approval: want allow, got %v", got)
	}
	if got := g.usedToken(); got != approved {
		t.Errorf("usedToken() = %q: want the token of the claim, so that it is removed", got)
	}
	g.stays(kept.Key) // The object came back to the hub before the copy was deleted.
	if got, _ := g.ask(kept, of(40), approved); got != deny {
		t.Errorf("ask() of the claim later, with the used token: want deny, got %v", got)
	}
	if got := token(t, g); got == approved {
		t.Errorf("show() has the used token %q again", got)
	}
}
