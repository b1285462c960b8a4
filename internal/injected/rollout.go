package injected

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/output"
)

// Rollout is how far the pods of a policy have come.
type Rollout struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	// Generation is that of the policy, ObservedGeneration the one that all below is
	// about; 0 if nobody has looked at the policy yet.
	Generation         int64 `json:"generation"`
	ObservedGeneration int64 `json:"observedGeneration"`
	// Hash is of what the policy injects.
	Hash string `json:"hash,omitempty"`
	// Strategy is how pods that are there are recreated.
	Strategy refractv1beta1.RolloutStrategy `json:"strategy"`
	// Phase is how far that is; empty if it has not begun.
	Phase refractv1beta1.RolloutPhase `json:"phase,omitempty"`
	// Workloads is how many are to be rolled or were, Done how many were; Current are
	// those that roll now, KIND/NAME.
	Workloads int32    `json:"workloads"`
	Done      int32    `json:"done"`
	Current   []string `json:"current,omitempty"`
	// Message says why it does not go on, if it does not.
	Message string `json:"message,omitempty"`
	// Pods are counts of those that the policy selects.
	Pods PodCounts `json:"pods"`
	// Attention names the workloads that need some, the worst first.
	Attention []refractv1beta1.WorkloadStatus `json:"attention,omitempty"`
	// Conditions are those of the policy.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodCounts are how many pods are in which state for a policy, as in its status.
type PodCounts struct {
	Matched  int32 `json:"matched"`
	Injected int32 `json:"injected"`
	Stale    int32 `json:"stale"`
	Skipped  int32 `json:"skipped"`
	Excluded int32 `json:"excluded"`
	Manual   int32 `json:"manual"`
}

// RolloutOf reads the status of a policy.
func RolloutOf(p *refractv1beta1.ServiceInjectionPolicy) *Rollout {
	s := &p.Status
	r := &Rollout{
		APIVersion: apiVersion, Kind: "PolicyRollout", Namespace: p.Namespace, Name: p.Name,
		Generation: p.Generation, ObservedGeneration: s.ObservedGeneration, Hash: s.Hash, Strategy: refractv1beta1.RolloutRolling,
		Pods:      PodCounts{s.Matched, s.Injected, s.Stale, s.Skipped, s.Excluded, s.Manual},
		Attention: s.Workloads, Conditions: s.Conditions,
	}
	if p.Spec.Rollout != nil && p.Spec.Rollout.Strategy != "" {
		r.Strategy = p.Spec.Rollout.Strategy
	}
	if s.Rollout != nil {
		r.Phase, r.Message = s.Rollout.Phase, s.Rollout.Message
		r.Workloads, r.Done, r.Current = s.Rollout.Workloads, s.Rollout.Done, s.Rollout.Current
	}
	return r
}

// String returns the name of the policy.
func (r *Rollout) String() string { return r.Namespace + "/" + r.Name }

// Observed reports whether all that is said is about the policy as it is now.
func (r *Rollout) Observed() bool {
	return r.ObservedGeneration >= r.Generation && r.ObservedGeneration > 0
}

// Complete reports whether nothing is left to be done: for what does not have pods
// recreated, that all which should have it do.
func (r *Rollout) Complete() bool {
	if r.Idle() {
		return meta.IsStatusConditionTrue(r.Conditions, refractv1beta1.ConditionRolledOut)
	}
	return r.Observed() && r.Phase == refractv1beta1.PhaseComplete
}

// Idle reports whether no pod is recreated for it, and waiting does not help: its
// strategy is None or its mode Audit, it is not valid, or the controller is not to.
func (r *Rollout) Idle() bool { return r.Observed() && r.Phase == "" }

// Halted reports whether it does not go on before somebody has looked at it: a
// workload did not come up again.
func (r *Rollout) Halted() bool { return r.Observed() && r.Phase == refractv1beta1.PhaseHalted }

// Line says in one line how far it has come.
func (r *Rollout) Line() string {
	switch {
	case r.ObservedGeneration == 0:
		return "nobody has looked at it yet"
	case !r.Observed():
		return fmt.Sprintf("generation %d is reported, and it is at %d", r.ObservedGeneration, r.Generation)
	case r.Phase == "":
		return r.pods()
	}
	line := string(r.Phase)
	if r.Workloads > 0 {
		line += fmt.Sprintf(", %d of %s done", r.Done, output.Count(r.Workloads, "workload", "workloads"))
	}
	if len(r.Current) > 0 {
		line += ", now " + strings.Join(r.Current, ", ")
	}
	if r.Message != "" {
		line += ": " + r.Message
	}
	return line
}

// pods says how many are in which state.
func (r *Rollout) pods() string {
	p := &r.Pods
	line := fmt.Sprintf("%s: %d injected, %d stale, %d skipped, %d excluded",
		output.Count(p.Matched, "pod", "pods"), p.Injected, p.Stale, p.Skipped, p.Excluded)
	if p.Manual > 0 {
		line += fmt.Sprintf("; %d of the stale ones are for their owners to recreate", p.Manual)
	}
	return line
}

// WriteRollout writes for people.
func WriteRollout(w io.Writer, r *Rollout) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%s: %s\n", r, r.Line())
	if r.ObservedGeneration > 0 && r.Phase != "" {
		fmt.Fprintf(out, "  %s\n", r.pods())
	}
	if r.Hash != "" {
		fmt.Fprintf(out, "  strategy %s, hash %s\n", r.Strategy, r.Hash)
	}
	if len(r.Attention) > 0 {
		fmt.Fprint(out, "\nWORKLOAD\tPODS\tREASON\tMESSAGE\n")
		for i := range r.Attention {
			a := &r.Attention[i]
			fmt.Fprintf(out, "%s/%s\t%d\t%s\t%s\n", a.Kind, a.Name, a.Pods, a.Reason, a.Message)
		}
	}
	if len(r.Conditions) > 0 {
		fmt.Fprint(out, "\nCONDITION\tSTATUS\tREASON\tMESSAGE\n")
		for i := range r.Conditions {
			c := &r.Conditions[i]
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return out.Flush()
}

// Step is something that a person does about the rollout of a policy.
type Step struct {
	// Annotations are those of the policy to set; a nil removes one. None are to be if
	// it has been done already.
	Annotations map[string]any
	// Said is what this means in words.
	Said string
}

// Why a step cannot be taken.
var (
	// ErrGoesOn is wrapped by the error for resuming what is neither paused nor halted.
	ErrGoesOn = errors.New("is neither paused nor halted")
	// ErrNothingToApprove is wrapped by the error for approving what does not wait for
	// that.
	ErrNothingToApprove = errors.New("does not wait for an approval")
)

// Pause has no further workload touched for the policy.
func Pause(p *refractv1beta1.ServiceInjectionPolicy) *Step {
	if paused(p) {
		return &Step{Said: "is paused already"}
	}
	return &Step{
		Annotations: map[string]any{refractv1beta1.PausedAnnotation: "true"},
		Said:        "paused: no further workload is touched; what rolls already goes on",
	}
}

// Resume has a rollout go on that is paused or halted.
func Resume(p *refractv1beta1.ServiceInjectionPolicy) (*Step, error) {
	r := RolloutOf(p)
	step := &Step{Annotations: map[string]any{}}
	var said []string
	if paused(p) {
		step.Annotations[refractv1beta1.PausedAnnotation] = nil
		said = append(said, "paused")
	}
	if r.Halted() {
		step.Annotations[refractv1beta1.ResumeAnnotation] = r.Hash
		said = append(said, "halted")
	}
	if len(said) == 0 {
		return nil, fmt.Errorf("the rollout of %s %w: %s", r, ErrGoesOn, r.Line())
	}
	step.Said = fmt.Sprintf("resumed: it was %s; hash %s", strings.Join(said, " and "), r.Hash)
	return step, nil
}

// Approve has a rollout of the strategy Manual begin.
func Approve(p *refractv1beta1.ServiceInjectionPolicy) (*Step, error) {
	r := RolloutOf(p)
	switch {
	case r.Hash != "" && p.Annotations[refractv1beta1.ApproveRolloutAnnotation] == r.Hash:
		return &Step{Said: fmt.Sprintf("is approved already with hash %s", r.Hash)}, nil
	case !r.Observed() || r.Phase != refractv1beta1.PhaseAwaitingApproval || r.Hash == "":
		return nil, fmt.Errorf("the rollout of %s %w: %s", r, ErrNothingToApprove, r.Line())
	}
	return &Step{
		Annotations: map[string]any{refractv1beta1.ApproveRolloutAnnotation: r.Hash},
		Said:        fmt.Sprintf("approved: %s, hash %s", output.Count(r.Workloads, "workload", "workloads"), r.Hash),
	}, nil
}

func paused(p *refractv1beta1.ServiceInjectionPolicy) bool {
	return p.Annotations[refractv1beta1.PausedAnnotation] == "true"
}
