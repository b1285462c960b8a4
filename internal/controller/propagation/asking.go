package propagation

import (
	"cmp"
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/placement"
	"refract.dev/tree"
)

// asking is a question that objects of a policy have begun to wait for, and that the policy's status has not asked
// yet, so that others may come to it.
type asking struct {
	placement.Question

	since time.Time
}

// ask gives what waits for approval the tokens that approve it, unless it has them. It returns the policy whose
// status is to say so, if what waits is something else than before.
//
// The tokens are in the records of the objects, which are written anyway. So an object does not wait for a write of
// the policy, and whoever decides next knows which objects a token is for.
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

// askTogether returns the token that approves the change for all objects of the policy that begin to wait for it now.
func (s *state) askTogether(ref tree.Policy, number string) string {
	is := s.asking[ref]
	if is.Number != number {
		is = asking{placement.Question{Number: number, Shared: rand.Text()}, time.Now()}
		s.asking[ref] = is
	}
	return is.Shared
}

// published is told that the status of a policy asks what the token approves: objects that begin to wait later have another one.
func (s *state) published(ref tree.Policy, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking[ref].Shared == token {
		delete(s.asking, ref)
	}
}

// mostAnswered is for how long a question whose answer is not carried out for all objects has others wait.
const mostAnswered = time.Minute

// answered is a token by which a policy is approved, and since when this replica has known that.
type answered struct {
	token string
	since time.Time
}

// question returns what the status of a policy is to ask, and in which time it is to be looked at again because of that; zero if it is
// not. One question is asked at a time: it stands until its objects do not wait any more, as their records say. So an approval
// holds after a restart in the midst of the change, for the objects that it was for.
func (v *reviewer) question(ref tree.Policy, known client.Object, u *usage) (held *corev1alpha1.PlacementHeld, again time.Duration) {
	is, others := statusIn(known).PlacementHeld.DeepCopy(), u.asked
	if !v.state.complete.Load() {
		return is, reviewDelay // Nobody knows yet what else waits.
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
		return nil, left // More objects are likely to come to it.
	default:
		v.state.published(ref, token)
		return &corev1alpha1.PlacementHeld{Token: token, Objects: others[token]}, 0
	}
}

// stands reports whether the question of a policy still waits for its answer, or the answer for being carried out; others is whether
// objects wait for the next one. If so, it returns in which time that may be otherwise.
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

// mostAsked returns the token for which most objects wait; empty if none does.
func mostAsked(tokens map[string]int64) (most string) {
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		if most == "" || tokens[token] > tokens[most] {
			most = token
		}
	}
	return most
}
