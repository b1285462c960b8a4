package propagation

import (
	"cmp"
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// asking is a question to users about a change of the placement of several objects. While the status of their policy
// does not show the question, more objects may join it.
type asking struct {
	placement.Question

	since time.Time
}

// ask assigns approval tokens to a change of a placement that waits without tokens. It returns the policies whose
// statuses need an update because the shared token of the object has changed. The Propagations contain the tokens, and
// are written in any case. So no object waits for a write of its policy, and the next leading replica knows the objects
// of each token.
func (s *state) ask(e *objectState, p *desiredState) (policies []tree.Policy) {
	held := p.held
	if held != nil && held.asked.Token == "" && !p.dryRun {
		held.asked = placement.Question{Number: held.Number, Token: rand.Text()}
		if p.propagation != nil {
			held.asked.Shared = s.askTogether(policyOf(p), held.Number)
		}
	}
	var before *heldPlacement
	if e.desired != nil {
		before = e.desired.held
	}
	if before.question().Shared == held.question().Shared {
		return nil
	}
	for _, is := range []*desiredState{e.desired, p} {
		if is != nil && is.propagation != nil {
			policies = append(policies, policyOf(is))
		}
	}
	return policies
}

// policyOf returns the policy that placed the object, without the generation of the policy.
func policyOf(p *desiredState) tree.Policy {
	return tree.Policy{Kind: p.propagation.Kind, Namespace: p.propagation.Namespace, Name: p.propagation.Name}
}

// askTogether returns the token of the present question. It approves the change for all objects of the policy that join
// the question.
func (s *state) askTogether(ref tree.Policy, number string) string {
	is := s.asking[ref]
	if is.Number != number {
		is = asking{placement.Question{Number: number, Shared: rand.Text()}, time.Now()}
		s.asking[ref] = is
	}
	return is.Shared
}

// published notes that the status of the policy shows the token: objects that begin to wait later get another token.
func (s *state) published(ref tree.Policy, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking[ref].Shared == token {
		delete(s.asking, ref)
	}
}

// mostAnswered is the maximum time for which an approved question delays the next one because some of its objects still
// wait.
const mostAnswered = time.Minute

// answered is the token of an approved question, and the time when this replica first saw the approval.
type answered struct {
	token string
	since time.Time
}

// question returns the question for the status of a policy, and the delay before it is checked again; zero for no
// check. A policy asks one question at a time. The question stays until no Propagation of its objects shows a waiting
// change. So an approval stays valid for the objects of the question after a restart in the middle of the change.
func (v *reviewer) question(ref tree.Policy, known client.Object, u *usage) (held *corev1alpha1.PlacementHeld, again time.Duration) {
	is, others := statusIn(known).PlacementHeld.DeepCopy(), u.asked
	if !v.state.complete.Load() {
		// Not all waiting objects are known yet.
		return is, reviewDelay
	}
	if is != nil {
		others = maps.Clone(others)
		delete(others, is.Token)
		is.Objects = cmp.Or(u.asked[is.Token], is.Objects)
		if stands, left := v.stands(ref, known, u, len(others) > 0); stands {
			return is, left
		}
	}
	delete(v.answers, ref)
	token := mostAsked(others)
	switch left := v.patience(len(u.users)) - time.Since(u.open.since); {
	case token == "":
		return nil, 0
	case token == u.open.Shared && left > 0:
		return nil, left // More objects are likely to join the question.
	default:
		v.state.published(ref, token)
		return &corev1alpha1.PlacementHeld{Token: token, Objects: others[token]}, 0
	}
}

// stands reports whether the question of a policy stays: it waits for an answer, or some of its objects have not moved
// since the answer. others is whether objects wait for the next question. again is the delay before the question is
// checked again; zero for no check.
func (v *reviewer) stands(ref tree.Policy, known client.Object, u *usage, others bool) (stands bool, again time.Duration) {
	token := statusIn(known).PlacementHeld.Token
	switch {
	case u.asked[token] == 0 && !v.records.ask(token):
		return false, 0
	case approvedIn(known) == "" || !others:
		return true, 0
	}
	if v.answers[ref].token != token {
		v.answers[ref] = answered{token, time.Now()}
	}
	left := mostAnswered - time.Since(v.answers[ref].since)
	return left > 0, left
}

// mostAsked returns the token of the largest number of waiting objects; empty if no object waits.
func mostAsked(tokens map[string]int64) (most string) {
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		if most == "" || tokens[token] > tokens[most] {
			most = token
		}
	}
	return most
}
