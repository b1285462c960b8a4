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

// asking is a question that objects of a policy have begun to wait for. The status of the policy does not show the
// question yet, so more objects may join it.
type asking struct {
	placement.Question

	since time.Time
}

// ask assigns approval tokens to a change of a placement that waits without them. It returns the policies whose
// statuses need an update because the shared token of the object has changed.
// The Propagations contain the tokens, and are written in any case. So an object does not wait for a write of the
// policy, and the next leading replica knows the objects of each token.
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

// policyOf returns the policy that placed the object, without generation.
func policyOf(p *desiredState) tree.Policy {
	return tree.Policy{Kind: p.propagation.Kind, Namespace: p.propagation.Namespace, Name: p.propagation.Name}
}

// askTogether returns the token that approves the change for all objects of the policy that begin to wait for the
// present question.
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

// mostAnswered is the maximum time that an approved question delays the next one while some objects have not moved yet.
const mostAnswered = time.Minute

// answered is the token of an approved question, and the time since which this replica has known the approval.
type answered struct {
	token string
	since time.Time
}

// question returns the question that the status of a policy shows, and the delay until the next look at it; zero for
// none. A policy asks one question at a time. The question stays until no Propagation of its objects shows a waiting
// change any more. So after a restart in the middle of the change, an approval still holds for the objects of the
// question.
func (v *reviewer) question(ref tree.Policy, known client.Object, u *usage) (held *corev1alpha1.PlacementHeld, again time.Duration) {
	is, others := statusIn(known).PlacementHeld.DeepCopy(), u.asked
	if !v.state.complete.Load() {
		// The other objects that wait are not known yet.
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
// since the answer. others is whether objects wait for the next question. If the question stays, again is the delay
// until the next look at it; zero for none.
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

// mostAsked returns the token that most objects wait for; empty if no object waits.
func mostAsked(tokens map[string]int64) (most string) {
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		if most == "" || tokens[token] > tokens[most] {
			most = token
		}
	}
	return most
}
