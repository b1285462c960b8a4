package status

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// Errors of actions on a rollout.
var (
	// ErrNoRollout: no rollout policy applies to the object.
	ErrNoRollout = errors.New("no rollout policy applies to it")
	// ErrNothingToApprove: the rollout waits for no approval.
	ErrNothingToApprove = errors.New("it does not wait for approval")
	// ErrGoesOn: the rollout is neither paused nor stopped.
	ErrGoesOn = errors.New("it is neither paused nor stopped")
)

// Rollout is the progress of a change of an object.
type Rollout struct {
	render.Object `json:",inline"`

	// Paused is whether a user has paused the rollout.
	Paused bool `json:"paused,omitempty"`
	// Rollout is the status in the Propagation, and shared with it.
	Rollout *refractv1alpha1.RolloutStatus `json:"rollout"`

	name string
}

// RolloutOf returns the rollout of an object. The annotations are those of its Propagation.
func RolloutOf(o *Object, annotations map[string]string) (*Rollout, error) {
	if o.Status.Rollout == nil {
		return nil, fmt.Errorf("%s: %w", o, ErrNoRollout)
	}
	return &Rollout{Object: o.Object, Paused: annotations[refractv1alpha1.PausedAnnotation] == "true", Rollout: o.Status.Rollout, name: o.String()}, nil
}

// Complete reports whether every cluster has the current object.
func (r *Rollout) Complete() bool { return r.Rollout.Phase == refractv1alpha1.RolloutComplete }

// Stopped reports whether the rollout has failed, and waits for a user.
func (r *Rollout) Stopped() bool { return rollout.Stopped(r.Rollout) }

// String returns the object in the format of the command line.
func (r *Rollout) String() string { return r.name }

// Line returns the phase and the message in one line.
func (r *Rollout) Line() string {
	line := string(r.Rollout.Phase)
	if r.Rollout.Message != "" {
		line += ": " + oneLine(r.Rollout.Message)
	}
	return line
}

// Step is an action on a rollout: changes of the annotations of its Propagation, where nil removes an annotation, and a
// message for the user.
type Step struct {
	Annotations map[string]any
	Said        string
}

// Approve continues a rollout that waits for an approval.
func (r *Rollout) Approve() (*Step, error) {
	if r.Rollout.Awaits == "" || r.Stopped() {
		return nil, fmt.Errorf("%s: %w: %s", r, ErrNothingToApprove, r.Line())
	}
	return &Step{map[string]any{refractv1alpha1.ApproveRolloutAnnotation: r.Rollout.Awaits}, "approved: " + oneLine(r.Rollout.Message)}, nil
}

// Pause stops the rollout before the next cluster.
func (r *Rollout) Pause() (*Step, error) {
	if r.Paused {
		return &Step{nil, "already paused"}, nil
	}
	return &Step{map[string]any{refractv1alpha1.PausedAnnotation: "true"}, "paused: no further cluster changes"}, nil
}

// Resume continues a paused rollout, and retries a stopped one.
func (r *Rollout) Resume() (*Step, error) {
	step := &Step{Annotations: map[string]any{}}
	var said []string
	if r.Paused {
		step.Annotations[refractv1alpha1.PausedAnnotation] = nil
		said = append(said, "resumed")
	}
	if r.Stopped() && r.Rollout.Awaits != "" {
		step.Annotations[refractv1alpha1.ResumeAnnotation] = r.Rollout.Awaits
		said = append(said, "retrying the same change")
	}
	if len(said) == 0 {
		return nil, fmt.Errorf("%s: %w: %s", r, ErrGoesOn, r.Line())
	}
	step.Said = strings.Join(said, ", and ")
	return step, nil
}

// followers returns the names of the objects that travel with the object and change together with it.
func followers(s *refractv1alpha1.RolloutStatus) []string {
	names := make([]string, len(s.Target.Followers))
	for i := range names {
		names[i] = s.Target.Followers[i].Resource + "/" + s.Target.Followers[i].Name
	}
	return names
}

// WriteRollout writes the rollout as text; now is the current time.
func WriteRollout(w io.Writer, r *Rollout, now time.Time) error {
	out := bufio.NewWriter(w)
	s := r.Rollout
	fmt.Fprintf(out, "%s: %s\n", r, r.Line())
	fmt.Fprintf(out, "  target     %s\n", describe(&s.Target))
	if s.LastGood.Name != s.Target.Name {
		fmt.Fprintf(out, "  last good  %s\n", describe(&s.LastGood))
	}
	if with := followers(s); len(with) > 0 {
		fmt.Fprintf(out, "  with       %s\n", render.Few(with))
	}
	for i := range s.Policies {
		fmt.Fprintf(out, "  by         %s\n", policyName(&s.Policies[i].PolicyReference))
	}
	if len(s.Waves) > 0 {
		rows := make([][]string, len(s.Waves))
		for i := range s.Waves {
			v := &s.Waves[i]
			rows[i] = []string{cmp.Or(v.Name, "(the others)"), number(v.Clusters), number(v.Done), number(v.Failed), sinceOf(v.Since, now)}
		}
		if err := (&table{}).write(out, []string{"WAVE", "CLUSTERS", "DONE", "FAILED", "SINCE"}, rows); err != nil {
			return err
		}
	}
	for i := range s.Current {
		c := &s.Current[i]
		switch {
		case c.Ready != nil:
			fmt.Fprintf(out, "  %s: ready for %s\n", c.Name, sinceOf(c.Ready, now))
		case c.Since != nil:
			fmt.Fprintf(out, "  %s: changed %s ago, not ready\n", c.Name, sinceOf(c.Since, now))
		default:
			fmt.Fprintf(out, "  %s: cannot be reached\n", c.Name)
		}
	}
	for i := range s.Failed {
		fmt.Fprintf(out, "  %s: failed: %s\n", s.Failed[i].Name, oneLine(s.Failed[i].Message))
	}
	if len(s.Offline) > 0 {
		fmt.Fprintf(out, "  skipped, as they cannot be reached: %s\n", render.Few(s.Offline))
	}
	switch {
	case r.Paused:
		fmt.Fprintf(out, "  → refract rollout resume %s\n", r)
	case s.Awaits != "" && r.Stopped():
		fmt.Fprintf(out, "  → edit the object or a policy, or refract rollout resume %s to retry\n", r)
	case s.Awaits != "":
		fmt.Fprintf(out, "  → refract rollout approve %s\n", r)
	}
	return out.Flush()
}

func describe(r *refractv1alpha1.Revision) string {
	const short = 12
	text := r.Name[:min(len(r.Name), short)]
	if r.Generation > 0 {
		text += fmt.Sprintf(", generation %d", r.Generation)
	}
	var policies []string
	for i := range r.Policies {
		p := &r.Policies[i].PolicyReference
		policies = append(policies, fmt.Sprintf("%s at generation %d", tree.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}, p.Generation))
	}
	if len(policies) > 0 {
		text += ", with " + strings.Join(policies, " and ")
	}
	return text
}

func sinceOf(t *metav1.MicroTime, now time.Time) string {
	if t == nil {
		return none
	}
	return duration.HumanDuration(max(now.Sub(t.Time), 0))
}

// WaveOf returns the current wave of a rollout in one word; empty if no rollout is in progress.
func WaveOf(s *refractv1alpha1.RolloutStatus) string {
	if s == nil || s.Phase == refractv1alpha1.RolloutComplete {
		return ""
	}
	if rollout.Stopped(s) {
		return string(s.Phase)
	}
	for i := range s.Waves {
		if v := &s.Waves[i]; v.Done+v.Failed < v.Clusters {
			return fmt.Sprintf("%s %d/%d", cmp.Or(v.Name, "others"), v.Done, v.Clusters)
		}
	}
	return string(s.Phase)
}

// Hopeless returns the reason why an object cannot reach a goal without an action of a user: its rollout was stopped.
// It returns "" if the object may reach the goal.
func (g Goal) Hopeless(o *Object, want Want) string {
	if o == nil || g == Deleted || o.UID != want.UID {
		return ""
	}
	if r := o.Status.Rollout; r != nil && rollout.Stopped(r) && r.Target.Generation >= want.Generation {
		return fmt.Sprintf("the rollout is %s: %s", strings.ToLower(string(r.Phase)), output.Cut(oneLine(r.Message), 1000))
	}
	return ""
}
