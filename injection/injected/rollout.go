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

// Rollout is the progress of a policy's rollout to its pods.
type Rollout struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	// Generation is the generation of the policy. ObservedGeneration is the generation that the fields below describe;
	// 0 before the controller has seen the policy.
	Generation         int64 `json:"generation"`
	ObservedGeneration int64 `json:"observedGeneration"`
	// Hash is the hash of the content that the policy injects.
	Hash string `json:"hash,omitempty"`
	// Strategy is the strategy for the recreation of existing pods.
	Strategy refractv1beta1.RolloutStrategy `json:"strategy"`
	// Phase is the phase of the rollout; empty if it has not begun.
	Phase refractv1beta1.RolloutPhase `json:"phase,omitempty"`
	// Workloads is the number of workloads of the rollout. Done is the number of workloads among them that are
	// complete. Current are the workloads that are being recreated now, as KIND/NAME.
	Workloads int32    `json:"workloads"`
	Done      int32    `json:"done"`
	Current   []string `json:"current,omitempty"`
	// Message is the reason why the rollout does not continue, if any.
	Message string `json:"message,omitempty"`
	// Pods counts the pods that the policy selects.
	Pods PodCounts `json:"pods"`
	// Attention lists the workloads that need attention, the worst first.
	Attention []refractv1beta1.WorkloadStatus `json:"attention,omitempty"`
	// Conditions are the conditions of the policy.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodCounts counts the pods in each state for a policy, as in the policy's status.
type PodCounts struct {
	Matched  int32 `json:"matched"`
	Injected int32 `json:"injected"`
	Stale    int32 `json:"stale"`
	Skipped  int32 `json:"skipped"`
	Excluded int32 `json:"excluded"`
	Manual   int32 `json:"manual"`
}

// RolloutOf returns the rollout in the status of a policy.
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

// String returns the namespace and name of the policy.
func (r *Rollout) String() string { return r.Namespace + "/" + r.Name }

// Observed reports whether the status describes the current generation of the policy.
func (r *Rollout) Observed() bool {
	return r.ObservedGeneration >= r.Generation && r.ObservedGeneration > 0
}

// Complete reports whether the rollout is complete. Without a rollout: every matched pod is injected.
func (r *Rollout) Complete() bool {
	if r.Idle() {
		return meta.IsStatusConditionTrue(r.Conditions, refractv1beta1.ConditionRolledOut)
	}
	return r.Observed() && r.Phase == refractv1beta1.PhaseComplete
}

// Idle reports whether the policy recreates no pods, so that it makes no sense to wait: its strategy is None, its mode
// is Audit, it is invalid, or the controller may not recreate pods.
func (r *Rollout) Idle() bool { return r.Observed() && r.Phase == "" }

// Halted reports whether the rollout has stopped because a recreated workload failed. It continues only after an action
// of a user.
func (r *Rollout) Halted() bool { return r.Observed() && r.Phase == refractv1beta1.PhaseHalted }

// Line describes the progress in one line.
func (r *Rollout) Line() string {
	switch {
	case r.ObservedGeneration == 0:
		return "it was not checked yet"
	case !r.Observed():
		return fmt.Sprintf("the report is for generation %d, want %d", r.ObservedGeneration, r.Generation)
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

// pods describes the number of pods in each state.
func (r *Rollout) pods() string {
	p := &r.Pods
	line := fmt.Sprintf("%s: %d injected, %d stale, %d skipped, %d excluded",
		output.Count(p.Matched, "pod", "pods"), p.Injected, p.Stale, p.Skipped, p.Excluded)
	if p.Manual > 0 {
		line += fmt.Sprintf("; owners have to recreate %d of the stale pods", p.Manual)
	}
	return line
}

// WriteRollout writes the rollout as text for users.
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

// Step is an action of a user on the rollout of a policy.
type Step struct {
	// Annotations are the annotations to set on the policy; a nil value removes an annotation. It is empty if the step
	// is already done.
	Annotations map[string]any
	// Said describes the effect of the step for the user.
	Said string
}

// Reasons why a step is impossible.
var (
	// ErrGoesOn is wrapped by the error for resuming a rollout that is neither paused nor halted.
	ErrGoesOn = errors.New("is neither paused nor halted")
	// ErrNothingToApprove is wrapped by the error for approving a rollout that does not await approval.
	ErrNothingToApprove = errors.New("does not wait for an approval")
)

// Pause returns the step that pauses the rollout: no further workload is recreated.
func Pause(p *refractv1beta1.ServiceInjectionPolicy) *Step {
	if paused(p) {
		return &Step{Said: "is paused already"}
	}
	return &Step{
		Annotations: map[string]any{refractv1beta1.PausedAnnotation: "true"},
		Said:        "paused: no further workload is recreated; current recreations continue",
	}
}

// Resume returns the step that resumes a paused or halted rollout.
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

// Approve returns the step that approves a rollout of the strategy Manual.
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
