package placement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/policy/placement"
)

func TestKeepingOf(t *testing.T) {
	cases := map[string]struct {
		reason   string
		in       map[string]string
		want     placement.Keeping
		adopts   []string // Adopting clusters among eu-1, eu-2, us-1.
		warnings []string
	}{
		"Nothing": {reason: "Without annotations, no setting applies."},
		"Flags": {
			reason: "Four annotations are boolean.",
			in: map[string]string{
				"kubeadmiral.io/dry-run": "true", "kubeadmiral.io/no-scheduling": "true",
				"kubeadmiral.io/retain-replicas": "true", "kubeadmiral.io/disable-following": "true",
			},
			want: placement.Keeping{DryRun: true, Frozen: true, RetainReplicas: true, DisableFollowing: true},
		},
		"Keep": {
			reason: "Copies can be protected.",
			in:     map[string]string{"refract.dev/keep": "true"},
			want:   placement.Keeping{Keep: true},
		},
		"NoKeep": {
			reason:   "Another value than true or false is ignored.",
			in:       map[string]string{"refract.dev/keep": "yes"},
			warnings: []string{`annotation refract.dev/keep is "yes" and ignored: want "true" or "false"`},
		},
		"Off": {
			reason: "The value false is valid.",
			in:     map[string]string{"kubeadmiral.io/dry-run": "false", "kubeadmiral.io/no-scheduling": ""},
		},
		"NoFlag": {
			reason:   "Any other value causes a warning.",
			in:       map[string]string{"kubeadmiral.io/retain-replicas": "True"},
			warnings: []string{`annotation kubeadmiral.io/retain-replicas is "True" and ignored: want "true" or "false"`},
		},
		"Orphan": {
			reason: "Copies can stay when the object is deleted.",
			in:     map[string]string{"kubeadmiral.io/orphan": "adopted"},
			want:   placement.Keeping{Orphan: placement.OrphanAdopted},
		},
		"NoOrphan": {
			reason:   "Only two values are valid.",
			in:       map[string]string{"kubeadmiral.io/orphan": "true"},
			warnings: []string{`annotation kubeadmiral.io/orphan is "true" and ignored: want one of ["all" "adopted"]`},
		},
		"Adopt": {
			reason: "Clusters are named or match an expression. As in KubeAdmiral, a match anywhere in the name counts.",
			in: map[string]string{
				"kubeadmiral.io/conflict-resolution": "adopt",
				"kubeadmiral.io/clusters-to-adopt":   `{"clusters":["us-1"],"regexp":"-2"}`,
			},
			adopts: []string{"eu-2", "us-1"},
		},
		"AdoptNowhere": {
			reason:   "The annotation with the clusters is missing.",
			in:       map[string]string{"kubeadmiral.io/conflict-resolution": "adopt"},
			warnings: []string{"annotation kubeadmiral.io/conflict-resolution adopts nothing: annotation kubeadmiral.io/clusters-to-adopt must name the clusters"},
		},
		"AdoptNone": {
			reason: "The annotation names no clusters.",
			in: map[string]string{
				"kubeadmiral.io/conflict-resolution": "adopt",
				"kubeadmiral.io/clusters-to-adopt":   `{"cluster":"us-1"}`,
			},
			warnings: []string{`annotation kubeadmiral.io/clusters-to-adopt names no cluster, so nothing is adopted: want {"clusters":["…"],"regexp":"…"}`},
		},
		"AdoptNotAsked": {
			reason:   "Adoption needs both annotations.",
			in:       map[string]string{"kubeadmiral.io/clusters-to-adopt": `{"clusters":["us-1"]}`},
			warnings: []string{"annotation kubeadmiral.io/clusters-to-adopt is ignored without annotation kubeadmiral.io/conflict-resolution: adopt"},
		},
		"AdoptPartly": {
			reason: "With an invalid regular expression, only the names count.",
			in: map[string]string{
				"kubeadmiral.io/conflict-resolution": "adopt",
				"kubeadmiral.io/clusters-to-adopt":   `{"clusters":["us-1"],"regexp":"["}`,
			},
			adopts:   []string{"us-1"},
			warnings: []string{"annotation kubeadmiral.io/clusters-to-adopt has a regexp that is ignored: error parsing regexp: missing closing ]: `[`"},
		},
		"AdoptNoJSON": {
			reason: "With an unreadable annotation, no object is adopted.",
			in: map[string]string{
				"kubeadmiral.io/conflict-resolution": "adopt",
				"kubeadmiral.io/clusters-to-adopt":   `us-1`,
			},
			warnings: []string{`annotation kubeadmiral.io/clusters-to-adopt is ignored: want {"clusters":["…"],"regexp":"…"}: invalid character 'u' looking for beginning of value`},
		},
		"Followers": {
			reason: "The valid items become followers, each once.",
			in: map[string]string{"kubeadmiral.io/followers": `[{"group":"","kind":"ConfigMap","name":"a"},{"kind":"ConfigMap","name":"a"},
				{"group":"networking.k8s.io","kind":"Ingress","name":"web"},{"group":"batch","kind":"Job","name":"b"},{"kind":"Service"}]`},
			want: placement.Keeping{Followers: []placement.Follower{{Kind: "ConfigMap", Name: "a"}, {Group: "networking.k8s.io", Kind: "Ingress", Name: "web"}}},
			warnings: []string{
				"annotation kubeadmiral.io/followers has an item [3] that is ignored: objects of kind Job do not travel with others",
				"annotation kubeadmiral.io/followers has an item [4] that is ignored: it must have a kind and a name",
			},
		},
		"FollowersNoList": {
			reason:   "A single follower must be in a list, too.",
			in:       map[string]string{"kubeadmiral.io/followers": `{"kind":"ConfigMap","name":"a"}`},
			warnings: []string{`annotation kubeadmiral.io/followers is ignored: want [{"group":"…","kind":"…","name":"…"}]: json: cannot unmarshal object into Go value of type []placement.Follower`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, warnings := placement.KeepingOf(tc.in)
			if diff := cmp.Diff(tc.warnings, warnings); diff != "" {
				t.Errorf("%s\nKeepingOf() warnings: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(placement.Keeping{}, "Adopt")); diff != "" {
				t.Errorf("%s\nKeepingOf(): -want, +got:\n%s", tc.reason, diff)
			}
			var adopts []string
			for _, name := range []string{"eu-1", "eu-2", "us-1"} {
				if got.Adopt.Includes(name) {
					adopts = append(adopts, name)
				}
			}
			if diff := cmp.Diff(tc.adopts, adopts); diff != "" {
				t.Errorf("%s\nAdopt.Includes(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFollows(t *testing.T) {
	cases := map[schema.GroupKind]bool{
		{Kind: "ConfigMap"}:                              true,
		{Group: "example.com", Kind: "Database"}:         true,
		{Group: "apps", Kind: "Deployment"}:              false,
		{Group: "apps", Kind: "ReplicaSet"}:              false,
		{Group: "coordination.k8s.io", Kind: "Lease"}:    false,
		{Group: "core.kubeadmiral.io", Kind: "Anything"}: false,
	}
	for kind, want := range cases {
		if got := placement.Follows(kind); got != want {
			t.Errorf("Follows(%s): want %t, got %t", kind, want, got)
		}
	}
}

func FuzzKeepingOf(f *testing.F) {
	f.Add("adopt", `{"clusters":["a"],"regexp":"b"}`, `[{"kind":"ConfigMap","name":"a"}]`, "all")
	f.Fuzz(func(_ *testing.T, resolution, clusters, followers, orphan string) {
		k, _ := placement.KeepingOf(map[string]string{
			"kubeadmiral.io/conflict-resolution": resolution, "kubeadmiral.io/clusters-to-adopt": clusters,
			"kubeadmiral.io/followers": followers, "kubeadmiral.io/orphan": orphan,
		})
		k.Adopt.Includes("a")
	})
}
