package propagation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/rollout"
)

// TestRolloutKnowsTheCopy: a rollout notices when a cluster has another copy than before, and minReadySeconds then
// begins again.
func TestRolloutKnowsTheCopy(t *testing.T) {
	key := keyOf("configmaps", "web")
	p := wanted(t, "web", "m")
	p.governed = released("m", revisionNamed("new"))
	hash := p.targets["m"].variant.hash
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	look := func(t *testing.T, change func(o *metav1.PartialObjectMetadata)) rollout.Cluster {
		t.Helper()
		d := newDepot()
		if o := owning(d.copyOf("web", hash), d.fields); change != nil {
			o.ManagedFields[0].Time = &at
			change(o)
			d.put(o)
		}
		c, m := joined(t, d, 0, onHub(nil))
		<-m.Copies.Watch(configMaps)
		row := refractv1alpha1.ClusterStatus{Name: "m", State: refractv1alpha1.StateSynced, Hash: hash, ReadySince: microTime(at.Time)}
		c.state.setDesired(key, p, previous{uid: "1", placed: on("m"), statuses: []refractv1alpha1.ClusterStatus{row}}, nil)
		_, statuses := c.state.standing(key)
		in := c.reporter.standing(key, p, statuses, steering{}, nil)
		if len(in.Clusters) != 1 || !in.Clusters[0].Holds {
			t.Fatalf("want one cluster, with the target, got %+v", in.Clusters)
		}
		return in.Clusters[0]
	}
	first := look(t, func(*metav1.PartialObjectMetadata) {})
	if first.Copy == "" || !first.Ready || !first.ReadySince.Equal(at.Time) {
		t.Fatalf("want a copy that has been ready since its row says, got %+v", first)
	}
	for name, tc := range map[string]struct {
		reason string
		change func(o *metav1.PartialObjectMetadata)
		want   string // The same copy, another one, or none.
	}{
		"Same":    {"Another client has set a label.", func(o *metav1.PartialObjectMetadata) { o.Labels["theirs"] = "x" }, "same"},
		"Created": {"The copy was created again.", func(o *metav1.PartialObjectMetadata) { o.UID = "other" }, "another"},
		"Corrected": {"Refract has corrected the copy.", func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields[0].Time = &metav1.Time{Time: at.Add(time.Second)}
		}, "another"},
		"None":       {"The cluster lost its copy.", nil, "none"},
		"LongUID":    {"A false member must not enlarge the report.", func(o *metav1.PartialObjectMetadata) { o.UID = types.UID(strings.Repeat("u", 65)) }, "none"},
		"LongestUID": {"The bound itself is accepted.", func(o *metav1.PartialObjectMetadata) { o.UID = types.UID(strings.Repeat("u", 64)) }, "another"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "another"
			switch look(t, tc.change).Copy {
			case first.Copy:
				got = "same"
			case "":
				got = "none"
			}
			if got != tc.want {
				t.Errorf("%s\nwant %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}
