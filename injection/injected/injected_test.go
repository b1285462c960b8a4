package injected

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

func TestMismatch(t *testing.T) {
	expression := func(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "role", Operator: operator, Values: values}}}
	}
	cases := map[string]struct {
		reason   string
		selector *metav1.LabelSelector
		labels   map[string]string
		want     string
	}{
		"OtherValue": {
			"The message names the other value.", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a", "role": "frontend"}},
			map[string]string{"app": "a", "role": "backend"}, "selects role=frontend, and the pod has role=backend",
		},
		"NoLabel": {
			"The message names the missing label.", &metav1.LabelSelector{MatchLabels: map[string]string{"role": "frontend"}},
			nil, "selects role=frontend, and the pod has no label role",
		},
		"EmptyValue": {
			"An empty value is a value.", &metav1.LabelSelector{MatchLabels: map[string]string{"role": ""}},
			nil, "selects role=, and the pod has no label role",
		},
		"In": {
			"The message names the accepted values.", expression(metav1.LabelSelectorOpIn, "a", "b"),
			map[string]string{"role": "c"}, "selects role in (a, b), and the pod has role=c",
		},
		"NotIn": {
			"The message names the excluded value.", expression(metav1.LabelSelectorOpNotIn, "a"),
			map[string]string{"role": "a"}, "selects role not in (a), and the pod has role=a",
		},
		"Exists": {
			"The label is required with any value.", expression(metav1.LabelSelectorOpExists),
			nil, "selects pods with the label role, and the pod has no label role",
		},
		"DoesNotExist": {
			"The label must be absent.", expression(metav1.LabelSelectorOpDoesNotExist),
			map[string]string{"role": "a"}, "selects pods without the label role, and the pod has role=a",
		},
		"None": {"A policy without a selector cannot be stored, but may be in a file.", nil, nil, "has no selector"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, mismatch(tc.selector, tc.labels)); diff != "" {
				t.Errorf("%s\nmismatch(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestSteps: the annotations of each step in each phase of the rollout.
func TestSteps(t *testing.T) {
	policy := func(phase refractv1beta1.RolloutPhase, annotations map[string]string) *refractv1beta1.ServiceInjectionPolicy {
		p := &refractv1beta1.ServiceInjectionPolicy{}
		p.Namespace, p.Name, p.Generation, p.Annotations = "shop", "db", 3, annotations
		p.Status.ObservedGeneration, p.Status.Hash = 3, "0af3"
		if phase != "" {
			p.Status.Rollout = &refractv1beta1.RolloutStatus{Hash: "0af3", Phase: phase}
		}
		return p
	}
	unseen := policy(refractv1beta1.PhaseAwaitingApproval, nil)
	unseen.Generation++
	paused := map[string]string{refractv1beta1.PausedAnnotation: "true"}
	pause := func(p *refractv1beta1.ServiceInjectionPolicy) (*Step, error) { return Pause(p), nil }
	cases := map[string]struct {
		reason string
		step   func(*refractv1beta1.ServiceInjectionPolicy) (*Step, error)
		policy *refractv1beta1.ServiceInjectionPolicy
		want   map[string]any
		err    string // A part of the error; empty without an error.
	}{
		"Pause":       {"A rollout can be paused at any time.", pause, policy("", nil), map[string]any{"refract.dev/rollout-paused": "true"}, ""},
		"PausedTwice": {"A paused rollout needs no further annotation.", pause, policy(refractv1beta1.PhasePaused, paused), nil, ""},
		"ResumePaused": {
			"The annotation is removed.", Resume, policy(refractv1beta1.PhasePaused, paused),
			map[string]any{"refract.dev/rollout-paused": nil}, "",
		},
		"ResumeHalted": {
			"The halted rollout is resumed for this hash.", Resume, policy(refractv1beta1.PhaseHalted, nil),
			map[string]any{"refract.dev/resume-rollout": "0af3"}, "",
		},
		"ResumeBoth": {
			"The rollout was both paused and halted.", Resume, policy(refractv1beta1.PhaseHalted, paused),
			map[string]any{"refract.dev/rollout-paused": nil, "refract.dev/resume-rollout": "0af3"}, "",
		},
		"ResumeRolling": {"A rollout in progress cannot be resumed.", Resume, policy(refractv1beta1.PhaseRolling, nil), nil, "is neither paused nor halted: Rolling"},
		"Approve": {
			"The approval is for this hash.", Approve, policy(refractv1beta1.PhaseAwaitingApproval, nil),
			map[string]any{"refract.dev/approve-rollout": "0af3"}, "",
		},
		"ApprovedTwice": {
			"An approved rollout needs no further annotation.", Approve, policy(refractv1beta1.PhaseAwaitingApproval, map[string]string{"refract.dev/approve-rollout": "0af3"}),
			nil, "",
		},
		"ApproveAnew": {
			"The policy has other content now, which needs another approval.", Approve,
			policy(refractv1beta1.PhaseAwaitingApproval, map[string]string{"refract.dev/approve-rollout": "0af2"}),
			map[string]any{"refract.dev/approve-rollout": "0af3"}, "",
		},
		"ApproveUnseen":  {"The hash of the present content is not known yet.", Approve, unseen, nil, "the report is for generation 3, want 4"},
		"ApproveRolling": {"A rollout in progress needs no approval.", Approve, policy(refractv1beta1.PhaseRolling, nil), nil, "does not wait for an approval: Rolling"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			step, err := tc.step(tc.policy)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s\nwant an error that says %q, got %v", tc.reason, tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, step.Annotations); diff != "" {
				t.Errorf("%s\nAnnotations: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRolloutEnds checks when waiting for a rollout ends.
func TestRolloutEnds(t *testing.T) {
	phase := func(p refractv1beta1.RolloutPhase) *refractv1beta1.RolloutStatus {
		return &refractv1beta1.RolloutStatus{Phase: p}
	}
	rolledOut := func(is metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: refractv1beta1.ConditionRolledOut, Status: is}}
	}
	type ends struct{ Complete, Halted, Idle bool }
	cases := map[string]struct {
		reason string
		status refractv1beta1.ServiceInjectionPolicyStatus
		want   ends
	}{
		"NotSeen":      {reason: "The controller has not seen the policy yet.", status: refractv1beta1.ServiceInjectionPolicyStatus{}},
		"NotSeenAnew":  {reason: "The status describes an earlier generation.", status: refractv1beta1.ServiceInjectionPolicyStatus{ObservedGeneration: 1, Rollout: phase(refractv1beta1.PhaseComplete)}},
		"Rolls":        {reason: "The rollout is not complete yet.", status: refractv1beta1.ServiceInjectionPolicyStatus{ObservedGeneration: 2, Rollout: phase(refractv1beta1.PhaseRolling)}},
		"Complete":     {reason: "The rollout is complete.", status: refractv1beta1.ServiceInjectionPolicyStatus{ObservedGeneration: 2, Rollout: phase(refractv1beta1.PhaseComplete)}, want: ends{Complete: true}},
		"Halted":       {reason: "A halted rollout waits for a user.", status: refractv1beta1.ServiceInjectionPolicyStatus{ObservedGeneration: 2, Rollout: phase(refractv1beta1.PhaseHalted)}, want: ends{Halted: true}},
		"NoneAndStale": {reason: "With the strategy None, stale pods are not recreated.", status: refractv1beta1.ServiceInjectionPolicyStatus{ObservedGeneration: 2, Conditions: rolledOut(metav1.ConditionFalse)}, want: ends{Idle: true}},
		"NoneAndDone":  {reason: "With the strategy None and no stale pods, the rollout is complete.", status: refractv1beta1.ServiceInjectionPolicyStatus{ObservedGeneration: 2, Conditions: rolledOut(metav1.ConditionTrue)}, want: ends{Complete: true, Idle: true}},
		"NoConditions": {reason: "A missing condition counts as false.", status: refractv1beta1.ServiceInjectionPolicyStatus{ObservedGeneration: 2}, want: ends{Idle: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := RolloutOf(&refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: tc.status})
			if diff := cmp.Diff(tc.want, ends{r.Complete(), r.Halted(), r.Idle()}); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
