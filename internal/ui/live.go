package ui

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/status"
	"refract.dev/tree"
)

// rolloutsPage is the data of the page "Rollouts".
type rolloutsPage struct {
	Live      bool
	Under     []rolloutRow // In progress or waiting.
	Stopped   []rolloutRow
	Completed int
}

// rolloutRow is the progress of a rollout.
type rolloutRow struct {
	Object, Address string
	Phase, Message  string
	Policies        []policyLink
	Target, Good    string
	Waves           []waveRow
	Failed          []string
	Command         string // A command that continues the rollout.
}

type waveRow struct {
	Name                   string
	Clusters, Done, Failed int32
	Share                  int // The percentage of clusters that are complete.
}

// rollouts returns the page with the rollouts in progress, the stopped rollouts, and the number of completed ones.
func (s *Snapshot) rollouts() *rolloutsPage {
	p := &rolloutsPage{Live: s.Live}
	for _, r := range s.fleet.rows {
		if r.reported == nil || r.reported.Status.Rollout == nil {
			continue
		}
		is := rolloutOf(r.reported, r.Address())
		switch progress := r.reported.Status.Rollout; {
		case rollout.Stopped(progress):
			p.Stopped = append(p.Stopped, is)
		case progress.Phase == refractv1alpha1.RolloutComplete:
			p.Completed++
		default:
			p.Under = append(p.Under, is)
		}
	}
	return p
}

func rolloutOf(o *status.Object, address string) rolloutRow {
	s := o.Status.Rollout
	is := rolloutRow{Object: o.Object.String(), Address: address, Phase: string(s.Phase), Message: s.Message, Target: revisionText(&s.Target)}
	if s.LastGood.Name != s.Target.Name {
		is.Good = revisionText(&s.LastGood)
	}
	for i := range s.Policies {
		ref := tree.Policy{Kind: s.Policies[i].Kind, Namespace: s.Policies[i].Namespace, Name: s.Policies[i].Name}
		is.Policies = append(is.Policies, policyLink{ref.String(), policyAddress(&ref)})
	}
	for i := range s.Waves {
		w := &s.Waves[i]
		is.Waves = append(is.Waves, waveRow{
			Name: cmp.Or(w.Name, "all others"), Clusters: w.Clusters, Done: w.Done, Failed: w.Failed, Share: int(100 * w.Done / max(w.Clusters, 1)),
		})
	}
	for i := range s.Failed {
		if m := s.Failed[i].Message; m != "" {
			is.Failed = append(is.Failed, s.Failed[i].Name+": "+m)
		}
	}
	switch {
	case s.Awaits == "":
	case rollout.Stopped(s):
		is.Command = "refract rollout resume " + o.String()
	default:
		is.Command = "refract rollout approve " + o.String()
	}
	return is
}

func revisionText(r *refractv1alpha1.Revision) string {
	const short = 12
	text := r.Name[:min(short, len(r.Name))]
	if r.Generation > 0 {
		text += fmt.Sprintf(", generation %d", r.Generation)
	}
	return text
}

// clustersPage is the data of the page "Clusters".
type clustersPage struct {
	Live     bool
	Clusters []memberRow
	Wrong    int
}

type memberRow struct {
	Name, Address          string
	Labels, Taints         []string
	Known                  bool // Whether the hub has a report about the cluster.
	Right, Leaving         bool
	Copies, Synced, Failed int
	Age                    string
	Problems               []string
}

// clusters returns the page with all clusters. Those with problems come first.
func (s *Snapshot) clusters() *clustersPage {
	p := &clustersPage{Live: s.Live}
	said := map[string]*status.Cluster{}
	all := status.NewClusters(s.members, s.statuses)
	for i := range all.Clusters {
		said[all.Clusters[i].Name] = &all.Clusters[i]
	}
	for i := range s.evaluation.Clusters {
		c := &s.evaluation.Clusters[i]
		is := memberRow{Name: c.Name, Address: "/?q=" + c.Name + "&each=1", Right: true, Labels: pairs(c.Labels), Taints: taints(c.Taints)}
		if m := said[c.Name]; m != nil {
			is.Known, is.Right, is.Leaving = true, m.Right(), m.Leaving
			is.Copies, is.Synced, is.Failed = m.Copies, m.Synced, m.Failed
			is.Age, is.Problems = duration.HumanDuration(s.at.Sub(m.Created.Time)), m.Problems()
		}
		if !is.Right {
			p.Wrong++
		}
		p.Clusters = append(p.Clusters, is)
	}
	slices.SortStableFunc(p.Clusters, func(a, b memberRow) int {
		switch {
		case a.Right == b.Right:
			return cmp.Compare(a.Name, b.Name)
		case b.Right:
			return -1
		default:
			return 1
		}
	})
	return p
}

func pairs(labels map[string]string) []string {
	texts := make([]string, 0, len(labels))
	for key, value := range labels {
		texts = append(texts, key+"="+value)
	}
	slices.Sort(texts)
	return texts
}

func taints(all []corev1.Taint) []string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].ToString()
	}
	return texts
}
