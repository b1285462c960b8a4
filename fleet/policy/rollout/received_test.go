package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// hub is the state of the hub in a world, except for the RolloutStatus.
type hub struct {
	lost map[string]bool // Names of revisions that are no longer stored.
	full bool            // No further revision can be stored.
	said []string        // All tokens that a status has shown.
	used map[string]bool // The tokens in said that were used.
	yes  map[string]bool // The approved waves, as TARGET/EDITS/WAVE.
}

func newHub() hub {
	return hub{lost: map[string]bool{}, used: map[string]bool{}, yes: map[string]bool{}}
}

// account has the contents that a member may hold, derived from its events.
type account struct {
	// good is the former content of the member, and found states whether the content is older than the first
	// RolloutStatus.
	good  string
	found bool
	// allowed has the contents that were released to the member's wave. got is whether the member has had the target's
	// content since the last release. tried is the last content that the member received from an incomplete rollout.
	allowed map[string]bool
	got     bool
	tried   string
	// back is whether the member left and returned between two calls, so that the RolloutStatus still lists it.
	back bool
	// unseen is whether the content of the member has not been read yet.
	unseen bool
}

func (a *account) allow(content string) {
	if a.allowed == nil {
		a.allowed = map[string]bool{}
	}
	a.allowed[content] = true
}

// drifts records that another writer changes the content.
func (m *member) drifts() {
	if m.found {
		m.good = m.content
	}
}

// foundWith gives the members contents, and deletes the RolloutStatus.
func (w *world) foundWith() {
	for _, m := range w.members {
		switch w.IntN(4) {
		case 0:
		case 1:
			target := revision(w.target)
			m.content = contentOf(&target, m)
		default:
			m.content = fmt.Sprintf("found%d", w.IntN(2))
		}
		m.ready, m.since, m.really = m.content != "", w.now, w.now
	}
	w.forget()
}

// forget deletes the RolloutStatus.
func (w *world) forget() {
	w.status, w.changed = nil, true
	for _, m := range w.members {
		m.account = account{good: m.content, found: m.content != "", unseen: w.IntN(2) == 0}
		m.recorded = time.Time{}
	}
	w.notef("no RolloutStatus, so the current contents are good")
}

// ofHub applies a random event on the hub.
func (w *world) ofHub() {
	switch w.IntN(5) {
	case 0:
		if w.IntN(3) == 0 {
			w.forget()
		}
	case 1:
		if w.status == nil {
			return
		}
		name := w.status.LastGood.Name
		if w.status.Superseded != nil && w.IntN(3) == 0 {
			name = w.status.Superseded.Name
		}
		w.lost[name] = !w.lost[name] && name != Found
		w.notef("%s lost %t", name, w.lost[name])
	case 2:
		w.full = w.IntN(3) == 0
		w.notef("full %t", w.full)
	case 3: // A user guesses a token from the status.
		nonce, attempt := "", int32(1)
		if w.status != nil {
			nonce, attempt = w.status.Nonce, w.status.Attempt
		}
		what := fmt.Sprint(w.IntN(4))
		w.approve = fmt.Sprintf("%s/%d/%s/%s", revision(w.target).Name, attempt+int32(w.IntN(2)), what, nonce)
		w.notef("approve %s, a guess", w.approve)
	case 4: // A user repeats an earlier token.
		if len(w.said) > 0 {
			w.approve = w.said[w.IntN(len(w.said))]
			w.notef("approve %s, an earlier token", w.approve)
		}
	}
}

func (w *world) awaits() string {
	if w.status == nil {
		return ""
	}
	return w.status.Awaits
}

// isLost reports whether a revision is not available. The newest revision is always available on the hub.
func (w *world) isLost(r *refractv1alpha1.Revision) bool {
	return w.lost[r.Name] && r.Name != revision(w.target).Name
}

// stand sets the fields of c that compare the member with the RolloutStatus.
func (w *world) stand(c *Cluster, m *member, target *refractv1alpha1.Revision) {
	newest := contentOf(target, m)
	has := &refractv1alpha1.Revision{Name: Found}
	settled := true
	if w.status != nil {
		has = Assigned(w.status, m.Name)
		settled = w.status.Phase == refractv1alpha1.RolloutComplete && w.status.Target.Name == target.Name
	}
	if has.Name == Found {
		c.Changes, c.Differs = !settled, !settled
		c.Holds = m.content == newest && w.status != nil && w.status.Attempt > 0
		c.Keeps = !m.offline && !m.unseen && m.content != "" && m.content != newest
		c.Unseen = !m.offline && m.unseen
		return
	}
	good := w.status.LastGood
	if w.status.Phase == refractv1alpha1.RolloutComplete {
		good = w.status.Target
	}
	c.Lost = w.isLost(has)
	c.Changes = newest != contentOf(&good, m) || w.isLost(&good)
	c.Differs = newest != contentOf(has, m) || c.Lost
	c.Holds = m.content == contentOf(has, m) && !c.Lost
	if m.refuses && !c.Holds || c.Lost {
		c.Refused = "no"
	}
}

// noRoom is the reason why a revision cannot be stored.
const noRoom = "no room"

// next returns the RolloutStatus that a replica writes next. If the revision cannot be stored, nothing is released.
func (w *world) next(was *refractv1alpha1.RolloutStatus, in *Input) (is *refractv1alpha1.RolloutStatus, until time.Time) {
	is, until = Next(was, in)
	if w.full && (was == nil || Unbegun(was) || is.Target.Name != was.Target.Name) {
		return Hold(was, is.Target, in.Clusters, noRoom), time.Time{}
	}
	return is, until
}

// kindOf returns the kind of the revision that is assigned to a cluster.
func kindOf(s *refractv1alpha1.RolloutStatus, name string) string {
	switch is := Assigned(s, name); {
	case is.Name == Found && s.LastGood.Name != Found:
		return "found beside another good one"
	case is.Name == Found:
		return "found"
	case is == s.Superseded:
		return "superseded"
	case is == &s.LastGood:
		return "good"
	default:
		return "target"
	}
}

// receives is called before a member gets other content. It returns an error if the content was not released to the
// member's wave, or if a halted rollout gives the target to another member.
func (w *world) receives(m *member, content string) error {
	target := contentOf(&w.status.Target, m)
	allowed := m.allowed[content]
	if m.content == "" { // A first copy is no change, and has the content of the other members.
		allowed = allowed || m.back || w.status.LastGood.Name != Found && content == contentOf(&w.status.LastGood, m)
	}
	switch {
	case content == m.good:
		return nil
	case !allowed:
		return fmt.Errorf("%s holds %q and receives %s, which was not released to its wave: %q is good, and %v were released", m.Name, m.content, content, m.good, m.allowed)
	case w.status.Phase == refractv1alpha1.RolloutHalted && content == target && !m.got && !failed(w.status, m.Name):
		return fmt.Errorf("the rollout was halted, but %s receives %s", m.Name, content)
	}
	m.got, m.tried, m.found = m.got || content == target, content, false
	return nil
}

// settleAccounts records the released contents, and the last good content.
func (l *laws) settleAccounts() {
	if l.is.Awaits != "" && !slices.Contains(l.said, l.is.Awaits) {
		l.said = append(l.said, l.is.Awaits)
	}
	again := l.is.Target.Name != l.was.Target.Name || l.is.Attempt != l.was.Attempt
	complete := l.is.Phase == refractv1alpha1.RolloutComplete
	for _, m := range l.members {
		if !m.there {
			continue
		}
		m.back = m.back && l.is.Message == noRoom
		content := contentOf(&l.is.Target, m)
		if again && !Stopped(l.is) {
			m.got = m.content == content
		}
		m.got = m.got || m.content == content
		switch {
		case l.is.Phase == refractv1alpha1.RolloutReverting && l.was.Phase != l.is.Phase:
			m.allowed = nil
		case !Stopped(l.is) && l.in.Policy != nil && l.policy.waveOf(&m.Cluster) < int(l.is.Opened):
			m.allow(content)
		}
		switch began := Unbegun(l.was); {
		case !m.found:
		case complete && (!began || !m.offline && !m.unseen) && Assigned(l.is, m.Name).Name != Found && (!began || m.content == "" || m.content == content):
			m.found = false
		case !m.offline && !m.unseen && (m.content == "" || m.content == content), Awaited(l.is, m.Name) && l.is.LastGood.Name != Found:
			m.found = false
		}
		if !m.found && l.is.LastGood.Name != Found {
			m.good = contentOf(&l.is.LastGood, m)
		}
		if complete {
			m.tried = ""
		}
		if complete && !m.found {
			m.allowed = map[string]bool{content: true}
		}
	}
}

// asked: a manual wave is opened only by a token that an earlier status showed, and each token works once.
func (l *laws) asked() error {
	if l.floor != nil || l.policy.maxChange >= 0 {
		return nil
	}
	for _, k := range l.opened() {
		if k >= len(l.spec.Waves) || l.spec.Waves[k].Strategy != refractv1alpha1.WaveManual {
			continue
		}
		if !slices.Contains(l.said, l.approve) {
			return fmt.Errorf("wave %d was opened by %q, a token that was never awaited", k, l.approve)
		}
		if l.used[l.approve] {
			return fmt.Errorf("wave %d was opened by %q, which was used before", k, l.approve)
		}
		l.used[l.approve] = true
	}
	return nil
}

// joins: the copy of a cluster in a Manual wave changes only after an approval of that wave for the same target and
// policies. For a Manual wave of the floor, the approval of any wave inside it is sufficient. The time at which the
// cluster joined does not matter.
func (l *laws) joins() error {
	if l.approve != "" && l.approve == l.was.Awaits && l.is.Nonce != l.was.Nonce {
		if part := strings.Split(l.approve, "/"); part[2] != retry {
			l.yes[fmt.Sprintf("%s/%d/%s", part[0], l.edits, part[2])] = true
		}
	}
	if l.in.Policy == nil || l.was.Attempt != l.is.Attempt {
		return nil
	}
	yes := func(wave int) bool { return l.yes[fmt.Sprintf("%s/%d/%d", l.is.Target.Name, l.edits, wave)] }
	for _, c := range l.released() {
		if m := l.of(c.Name); c.Joining || contentOf(&l.is.Target, m) == contentOf(Assigned(l.was, c.Name), m) {
			continue
		}
		wave := l.policy.waveOf(&c.Cluster)
		outer, inner := wave, -1
		specs := []*refractv1alpha1.RolloutPolicySpec{&l.spec}
		if l.floor != nil {
			specs = []*refractv1alpha1.RolloutPolicySpec{l.floor, &l.spec}
			outer, inner = wave/(len(l.spec.Waves)+1), wave%(len(l.spec.Waves)+1)
		}
		approved := yes(wave)
		if inner >= 0 && isManual(l.spec.Waves, inner) && !approved {
			return fmt.Errorf("%s got the target in the Manual wave %d, which is not approved", c.Name, wave)
		}
		for k := range l.policy.waves() {
			approved = approved || l.floor != nil && k/(len(l.spec.Waves)+1) == outer && yes(k)
		}
		if isManual(specs[0].Waves, outer) && !approved {
			return fmt.Errorf("%s got the target in wave %d, but wave %d of the floor is Manual and not approved", c.Name, wave, outer)
		}
	}
	return nil
}

func isManual(waves []refractv1alpha1.RolloutWave, k int) bool {
	return k < len(waves) && waves[k].Strategy == refractv1alpha1.WaveManual
}

// begins: no rollout is complete before the contents of the clusters are known, and a cluster with other content does
// not get the target without a rollout.
func (l *laws) begins() error {
	if !Unbegun(l.was) || l.is.Phase != refractv1alpha1.RolloutComplete {
		return nil
	}
	seen := len(l.in.Clusters) == 0
	for i := range l.in.Clusters {
		m := l.of(l.in.Clusters[i].Name)
		switch {
		case m.offline:
			continue
		case m.unseen:
			return fmt.Errorf("the rollout is complete, but the content of %s is unread", m.Name)
		case m.content != "" && m.content != contentOf(&l.is.Target, m):
			return fmt.Errorf("the rollout is complete, but %s has the content %s", m.Name, m.content)
		}
		seen = true
	}
	if !seen {
		return errors.New("the rollout is complete without a reachable cluster")
	}
	return nil
}

// taken: a revision that cannot be stored does not become the target.
func (l *laws) taken() error {
	if l.full && l.is.Target.Name != l.was.Target.Name {
		return fmt.Errorf("%s cannot be stored, but is the target", l.is.Target.Name)
	}
	return nil
}

// stalls: after a revert, each reachable cluster has its former content. If that content is not available, the rollout
// is stalled, and its message names the clusters.
func (l *laws) stalls() error {
	if l.is.Phase == refractv1alpha1.RolloutStalled && l.is.Message != noRoom {
		for _, name := range l.is.Reverting {
			if !strings.Contains(l.is.Message, name) {
				return fmt.Errorf("the rollout is stalled, but the message does not name %s: %s", name, l.is.Message)
			}
		}
	}
	for i := range l.in.Clusters {
		m := l.of(l.in.Clusters[i].Name)
		if m.offline || m.content == "" || m.content != m.tried || m.content == m.good {
			continue
		}
		// A held RolloutStatus keeps its phase. It still assigns the former content, and names the cluster in Reverting.
		held := l.is.Message == noRoom && slices.Contains(l.is.Reverting, m.Name)
		if l.is.Phase == refractv1alpha1.RolloutReverted && l.was.Phase != refractv1alpha1.RolloutComplete && !held {
			return fmt.Errorf("the rollout is reverted, but %s holds %s, not %s", m.Name, m.content, m.good)
		}
	}
	return nil
}
