package member

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// named is a FederatedCluster that records a cluster and has a rank.
func named(name, uid string, rank int64, more ...func(*corev1alpha1.FederatedCluster)) corev1alpha1.FederatedCluster {
	fc := corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	fc.Status.ClusterUID, fc.Status.ClusterClaim = types.UID(uid), rank
	for _, do := range more {
		do(&fc)
	}
	return fc
}

// inPlaceOf returns a change that makes a FederatedCluster replace another name.
func inPlaceOf(name string) func(*corev1alpha1.FederatedCluster) {
	return func(fc *corev1alpha1.FederatedCluster) { fc.Annotations[refractv1alpha1.ReplacesAnnotation] = name }
}

func TestStand(t *testing.T) {
	cases := map[string]struct {
		reason string
		all    []corev1alpha1.FederatedCluster
		want   map[string]string
	}{
		"One": {
			reason: "A name is served as soon as it has a rank.",
			all:    []corev1alpha1.FederatedCluster{named("a", "", 0), named("b", "u", 0), named("c", "v", 1)},
			want:   map[string]string{"a": "unclaimed", "b": "choosing", "c": "inService"},
		},
		"Two": {
			reason: "The name that claimed the cluster first is served.",
			all:    []corev1alpha1.FederatedCluster{named("a", "u", 2), named("b", "u", 1)},
			want:   map[string]string{"a": "duplicate of b", "b": "inService"},
		},
		"Choosing": {
			reason: "A name that is still choosing may get the lower rank.",
			all:    []corev1alpha1.FederatedCluster{named("a", "u", 1), named("b", "u", 0)},
			want:   map[string]string{"a": "waiting for b", "b": "choosing"},
		},
		"Renamed": {
			reason: "A name replaces the name in its annotation, regardless of other names.",
			all:    []corev1alpha1.FederatedCluster{named("a", "u", 1), named("b", "u", 2), named("c", "u", 3, inPlaceOf("a"))},
			want:   map[string]string{"a": "renamed to c", "b": "duplicate of c", "c": "inService for a"},
		},
		"RenamedTwice": {
			reason: "The first of three names may still exist.",
			all:    []corev1alpha1.FederatedCluster{named("a", "u", 1), named("b", "u", 2, inPlaceOf("a")), named("c", "u", 3, inPlaceOf("b"))},
			want:   map[string]string{"a": "renamed to c", "b": "renamed to c", "c": "inService for a b"},
		},
		"RenamedBack": {
			reason: "A reused name replaces the name that had replaced it.",
			all:    []corev1alpha1.FederatedCluster{named("a", "u", 3, inPlaceOf("b")), named("b", "u", 2, inPlaceOf("a"))},
			want:   map[string]string{"a": "inService for b", "b": "renamed to a"},
		},
		"Gone": {
			reason: "The successor inherits the standing of a name that is gone.",
			all:    []corev1alpha1.FederatedCluster{named("c", "u", 2, inPlaceOf("a"))},
			want:   map[string]string{"c": "inService for a"},
		},
		"AnotherCluster": {
			reason: "A name does not replace the name of another cluster.",
			all:    []corev1alpha1.FederatedCluster{named("a", "u", 1), named("b", "v", 1, inPlaceOf("a"))},
			want:   map[string]string{"a": "inService", "b": "inService"},
		},
		"Liar": {
			reason: "A member that claims the UID of another cluster, even if it joined earlier, only stops itself from being served.",
			all: []corev1alpha1.FederatedCluster{
				named("liar", "u", 2, func(fc *corev1alpha1.FederatedCluster) { fc.CreationTimestamp = metav1.NewTime(time.Unix(1, 0)) }),
				named("served", "u", 1, func(fc *corev1alpha1.FederatedCluster) { fc.CreationTimestamp = metav1.NewTime(time.Unix(2, 0)) }),
			},
			want: map[string]string{"liar": "duplicate of served", "served": "inService"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for i := range tc.all {
				got[tc.all[i].Name] = say(stand(tc.all[i].Name, tc.all))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nstand(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func say(d decision) string {
	switch d.standing {
	case unclaimed:
		return "unclaimed"
	case choosing:
		return "choosing"
	case waiting:
		return "waiting for " + d.other
	case duplicate:
		return "duplicate of " + d.other
	case renamed:
		return "renamed to " + d.other
	case inService:
		return strings.TrimSuffix("inService for "+strings.Join(d.former, " "), " for ")
	}
	return ""
}

func TestContested(t *testing.T) {
	now := metav1.Now()
	leaving := func(fc *corev1alpha1.FederatedCluster) { fc.DeletionTimestamp = &now }
	at := func(endpoint string) func(*corev1alpha1.FederatedCluster) {
		return func(fc *corev1alpha1.FederatedCluster) { fc.Spec.APIEndpoint = endpoint }
	}
	cases := map[string]struct {
		reason string
		other  corev1alpha1.FederatedCluster
		want   string
	}{
		"SecondName":     {"The second name has the same copies.", named("b", "u", 2), "b"},
		"LeavesToo":      {"No remaining name needs the copies.", named("b", "u", 2, leaving), ""},
		"Successor":      {"Events may come in any order: the successor exists, and was not reconciled yet.", named("b", "", 0, inPlaceOf("a")), "b"},
		"SameAddress":    {"A name at the same address that is not identified yet can only be the same cluster.", named("b", "", 0, at("https://a")), "b"},
		"Another":        {"A name of another cluster does not count.", named("b", "v", 1, inPlaceOf("a"), at("https://a")), ""},
		"UnknownAnother": {"An unidentified name at another address does not count.", named("b", "", 0, at("https://b")), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all := []corev1alpha1.FederatedCluster{named("a", "u", 1, leaving, at("https://a")), tc.other}
			if got := contested(&all[0], all); got != tc.want {
				t.Errorf("%s\ncontested(): want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// TestOlderNameIsServedAfterAnUpgrade: no name records its cluster, two names are in use, and the replica of the
// younger one is first.
func TestOlderNameIsServedAfterAnUpgrade(t *testing.T) {
	before := func(name string, age int64) corev1alpha1.FederatedCluster {
		return named(name, "", 0, func(fc *corev1alpha1.FederatedCluster) {
			fc.CreationTimestamp = metav1.NewTime(time.Unix(age, 0))
			fc.Status.JoinPerformed = true
			fc.Status.Conditions = []corev1alpha1.ClusterCondition{{Type: corev1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		})
	}
	all := []corev1alpha1.FederatedCluster{before("a-younger", 2), before("b-older", 1)}
	for range 3 {
		for i := range all {
			advance(&all[i], "u", slices.Clone(all), true)
		}
	}
	if got := []string{say(stand("a-younger", all)), say(stand("b-older", all))}; !slices.Equal(got, []string{"duplicate of b-older", "inService"}) {
		t.Errorf("want the older name served, got %v", got)
	}
	all = []corev1alpha1.FederatedCluster{before("a-younger", 2), before("b-older", 1)}
	for range 3 {
		advance(&all[0], "u", slices.Clone(all), false)
	}
	if got := say(stand("a-younger", all)); got != "inService" {
		t.Errorf("want the wait for a name without a recorded cluster bounded by the patience, got %s", got)
	}
}

// TestNameWaitsForOneThatWasNotAsked: a name has recorded its cluster. Another name at the same address is served with
// an earlier UID. The same cluster may have had this UID before it was rebuilt.
func TestNameWaitsForOneThatWasNotAsked(t *testing.T) {
	at := func(endpoint string) func(*corev1alpha1.FederatedCluster) {
		return func(fc *corev1alpha1.FederatedCluster) { fc.Spec.APIEndpoint = endpoint }
	}
	now := metav1.Now()
	leaving := func(fc *corev1alpha1.FederatedCluster) { fc.DeletionTimestamp = &now }
	cases := map[string]struct {
		reason   string
		others   []corev1alpha1.FederatedCluster
		patience bool
		want     string
	}{
		"Served": {
			"The replica of the other name writes until it has identified the cluster again.",
			[]corev1alpha1.FederatedCluster{named("a", "u", 1, at("https://a"))}, true, "choosing",
		},
		"Leaving":   {"The other name's replica deletes copies.", []corev1alpha1.FederatedCluster{named("a", "u", 1, at("https://a"), leaving)}, true, "choosing"},
		"Patience":  {"One address may lead to two clusters.", []corev1alpha1.FederatedCluster{named("a", "u", 1, at("https://a"))}, false, "inService"},
		"Elsewhere": {"A name at another address is another cluster.", []corev1alpha1.FederatedCluster{named("a", "u", 1, at("https://b"))}, true, "inService"},
		"Chooses":   {"No copies are written through a name that is choosing, and two names must not wait for each other.", []corev1alpha1.FederatedCluster{named("a", "u", 0, at("https://a"))}, true, "inService"},
		"Asked":     {"The other name records the current cluster, and has a rank.", []corev1alpha1.FederatedCluster{named("a", "v", 1, at("https://a"))}, true, "duplicate of a"},
		"Duplicate": {
			reason:   "No copies are written through a second name, and the first name has another address.",
			others:   []corev1alpha1.FederatedCluster{named("a", "u", 2, at("https://a")), named("c", "u", 1, at("https://c"))},
			patience: true, want: "inService",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all := append(slices.Clone(tc.others), named("b", "t", 1, at("https://a")))
			own := &all[len(all)-1]
			for range 3 {
				advance(own, "v", slices.Clone(all), tc.patience)
			}
			if diff := cmp.Diff(tc.want, say(stand("b", all))); diff != "" {
				t.Errorf("%s\nstand() after advance(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// views is a hub with replicas whose caches lag behind it by random amounts. A cache never returns to an older state.
type views struct {
	t       *testing.T
	rand    *rand.Rand
	history [][]corev1alpha1.FederatedCluster // All states of the hub, from the beginning.
	seen    []int                             // By replica: the index of its cached state.
	serving map[string]bool                   // The served names, each by the replica that has its shard.
}

func (v *views) hub() []corev1alpha1.FederatedCluster { return v.history[len(v.history)-1] }

// write changes the hub.
func (v *views) write(do func(all []corev1alpha1.FederatedCluster) []corev1alpha1.FederatedCluster) {
	var all []corev1alpha1.FederatedCluster
	for i := range v.hub() {
		all = append(all, *v.hub()[i].DeepCopy())
	}
	v.history = append(v.history, do(all))
}

func (v *views) add(fc corev1alpha1.FederatedCluster) {
	fc.ResourceVersion = fmt.Sprint(len(v.history))
	v.write(func(all []corev1alpha1.FederatedCluster) []corev1alpha1.FederatedCluster { return append(all, fc) })
}

// look makes a replica reconcile a name whose member identifies itself as this cluster.
func (v *views) look(replica int, name string, uid types.UID) {
	v.seen[replica] += v.rand.IntN(len(v.history) - v.seen[replica])
	all := v.history[v.seen[replica]]
	at := slices.IndexFunc(all, func(fc corev1alpha1.FederatedCluster) bool { return fc.Name == name })
	if at < 0 {
		return
	}
	is := stand(name, all)
	next := all[at].DeepCopy()
	written, _ := advance(next, uid, all, true)
	if written {
		delete(v.serving, name)
		v.write(func(hub []corev1alpha1.FederatedCluster) []corev1alpha1.FederatedCluster {
			i := slices.IndexFunc(hub, func(fc corev1alpha1.FederatedCluster) bool { return fc.Name == name })
			if i >= 0 && hub[i].ResourceVersion == next.ResourceVersion { // Otherwise the write is rejected.
				next.ResourceVersion = fmt.Sprint(len(v.history))
				hub[i] = *next
			}
			return hub
		})
		return
	}
	switch is.standing {
	case inService:
		for _, former := range is.former {
			delete(v.serving, former)
		}
		v.serving[name] = true
	case renamed:
		delete(v.serving, name)
	case unclaimed, choosing, waiting, duplicate:
	}
}

// check fails if more than one of these names of the cluster is served.
func (v *views) check(names ...string) {
	v.t.Helper()
	n := 0
	for _, fc := range v.hub() {
		if v.serving[fc.Name] && (slices.Contains(names, fc.Name) || fc.Status.ClusterUID == "u") {
			n++
		}
	}
	if n > 1 {
		v.t.Fatalf("want one name served, got %v after %d writes", v.serving, len(v.history))
	}
}

// TestReplicasServeOneName: replicas with caches that lag behind reconcile two names of a cluster, a member that
// sometimes claims to be that cluster, and a name that replaces the served one.
func TestReplicasServeOneName(t *testing.T) {
	for seed := range uint64(2000) {
		v := &views{t: t, rand: rand.New(rand.NewPCG(seed, 1)), seen: []int{0, 0, 0}, serving: map[string]bool{}}
		v.history = [][]corev1alpha1.FederatedCluster{{}}
		v.add(named("a", "", 0))
		v.add(named("b", "", 0))
		v.add(named("liar", "", 0))
		replicas := map[string]int{"a": 0, "b": 1, "liar": 2}
		uids := map[string]types.UID{"a": "u", "b": "u", "liar": "l"}
		step := func() {
			name := []string{"a", "b", "liar", "new"}[v.rand.IntN(4)]
			replica, there := replicas[name]
			if !there {
				return
			}
			v.look(replica, name, uids[name])
			if v.rand.IntN(20) == 0 {
				delete(v.serving, name) // The replica starts again.
			}
			v.check("a", "b", "new")
		}
		for range 60 {
			step()
		}
		winner := ""
		for i := range v.hub() {
			if say(stand(v.hub()[i].Name, v.hub())) == "inService" && v.hub()[i].Status.ClusterUID == "u" {
				winner = v.hub()[i].Name
			}
		}
		if winner == "" {
			continue // The caches lagged too far behind.
		}
		uids["liar"] = "u"
		for range 40 {
			step()
		}
		if got := say(stand("liar", v.hub())); got != "choosing" && got != "duplicate of "+winner && !strings.HasPrefix(got, "inService") && got != "unclaimed" {
			t.Fatalf("seed %d: the member with the false UID: got %s, and %s is served", seed, got, winner)
		}
		if v.serving["liar"] && stand("liar", v.hub()).standing == duplicate {
			t.Fatalf("seed %d: the member with the false UID is served in place of %s", seed, winner)
		}
		v.add(named("new", "", 0, inPlaceOf(winner)))
		replicas["new"], uids["new"] = replicas[winner], "u"
		for range 80 {
			step()
		}
		if got := say(stand("new", v.hub())); got != "inService for "+winner && got != "choosing" && got != "unclaimed" && !strings.HasPrefix(got, "waiting") {
			t.Fatalf("seed %d: the new name: got %s", seed, got)
		}
	}
}
