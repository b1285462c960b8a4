package propagation

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
)

// DefaultGuard is the share of the copies of a namespace on a member that may be deleted without an approval, in
// percent.
const DefaultGuard = 30

// unguarded is the share that turns off all waits for approval, on a member and across the fleet. Deletions of copies
// that hold data, and of CustomResourceDefinitions with objects, still wait.
const unguarded = 100

// The limits for deletions without an approval. In one pass, a namespace of a member may lose guardCopies copies, or
// the share if that is more. Many small steps count like a large one: within guardWindow, a namespace may lose
// guardPasses copies, or the share if that is more. Copies that exist again do not count.
const (
	guardCopies = 10
	guardPasses = 30
)

const (
	// guardSettles is how long the guard waits for further deletions before it judges them together.
	guardSettles = time.Second
	// guardWindow is how long the guard counts a loss.
	guardWindow = time.Minute
)

// guard judges the deletions on a member that no user requested. It collects them. If they exceed the limits, all of
// them wait until a user has approved exactly these: a hub that was emptied by mistake, or restored from an old backup,
// must not empty the fleet. The guard judges each cause in each namespace by itself, so that one tenant does not stop
// the others; [guard.excess] describes the further judgements.
type guard struct {
	share float64
	all   bool // Whether deletions that users requested by calls are judged, too.

	mu        sync.Mutex
	undecided map[Key]removal   // Deletions that are being collected.
	since     time.Time         // The time of the first deletion in undecided.
	changed   time.Time         // The time of the last deletion in undecided.
	pending   pendingRemovals   // Deletions that wait for approval.
	shown     [4]uint64         // The digests of the pending deletions when they were shown last.
	recast    bool              // Whether the cause of a pending deletion has changed since then.
	used      string            // The last approved token.
	recorded  []string          // The tokens from before a start, as the FederatedCluster reports them.
	resumed   time.Time         // The time when recorded was read.
	issued    []issue           // The tokens and their deletions, the newest last.
	allowed   map[Key]removal   // Deletions that need no approval.
	approved  map[Key]types.UID // Deletions that a user has approved, by UID.
	lost      map[Key]loss      // Losses without a request or an approval within the window.
	copies    map[string]int    // The copies of the member at the last judgement, by namespace.
	judged    time.Time         // The time of the last judgement; zero if fewer deletions are pending since.
	now       func() time.Time
}

// removal is a copy that is to be deleted.
type removal struct {
	Key

	uid   types.UID
	cause cause
	// needsApproval is whether the deletion needs an approval by itself: because it deletes further objects, or because
	// the copy is kept.
	needsApproval bool
}

// kept reports whether the copy needs approval because of its data, see [holding].
func (r *removal) kept() bool {
	return r.needsApproval && r.GroupResource != crdResource.GroupResource()
}

// group identifies deletions that are judged together.
type group struct {
	namespace string
	cause     cause
}

func (r *removal) group() group { return group{r.Namespace, r.cause} }

// loss is a copy that was deleted.
type loss struct {
	group

	at time.Time
}

// issue is a token with the deletions that it approves.
type issue struct {
	token    string
	removals map[Key]removal
}

// issues is the number of sets of deletions whose tokens are remembered: while a user reads and approves one set, more
// deletions may be added.
const issues = 32

// guardCollects is the maximum time that the guard waits for further deletions.
const guardCollects = 5 * guardSettles

func newGuard(percent int, now func() time.Time) *guard {
	return &guard{
		share:     float64(percent) / 100,
		undecided: map[Key]removal{}, pending: newPendingRemovals(), allowed: map[Key]removal{}, approved: map[Key]types.UID{}, lost: map[Key]loss{},
		now: now,
	}
}

// answer is the decision of the guard about a deletion.
type answer int

const (
	notYet answer = iota // Ask again after the delay.
	allow                // The copy may be deleted now.
	deny                 // The copy may not be deleted until a user approves it.
)

// ask returns whether a copy may be deleted. copies returns the number of copies of the member by namespace; approved
// is the token that a user has approved.
func (g *guard) ask(r removal, copies func() map[string]int, approved string) (answer, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.approve(approved)
	now := g.now()
	was, isPending := g.pending.byKey[r.Key]
	if isPending && (was.cause != r.cause || was.needsApproval != r.needsApproval) {
		g.recast = true
	}
	switch {
	case g.passes(&r):
		return allow, 0
	case r.needsApproval: // The deletion waits by itself, and does not count in the limits of others.
		delete(g.undecided, r.Key)
		delete(g.allowed, r.Key)
		g.copies = copies()
		g.pending.add(r)
		return deny, 0
	case isPending:
		g.pending.add(r) // The cause may have changed, or the deletion may no longer need approval by itself.
		if was.needsApproval || was.cause != r.cause {
			g.judged = time.Time{}
		}
		if g.collecting(now) > 0 || now.Sub(g.judged) < guardSettles {
			return deny, 0
		}
	case g.pending.much[r.group()] > 0:
		g.pending.add(r)
		return deny, 0
	default:
		if _, there := g.undecided[r.Key]; !there {
			if len(g.undecided) == 0 {
				g.since = now
			}
			g.changed = now
		}
		g.undecided[r.Key] = r
		if left := g.collecting(now); left > 0 {
			return notYet, left
		}
	}
	g.judge(copies(), now)
	if g.passes(&r) {
		return allow, 0
	}
	return deny, 0
}

// await collects a deletion until all deletions on the member are known. Each call restarts the waiting times of the
// guard, so that it judges all collected deletions together later.
func (g *guard) await(r removal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, isPending := g.pending.byKey[r.Key]; isPending || g.passes(&r) {
		return
	}
	g.undecided[r.Key] = r
	g.since = g.now()
	g.changed = g.since
}

// passes reports whether the copy may be deleted now. A deletion that was allowed within the limits is judged again if
// it needs an approval by now.
func (g *guard) passes(r *removal) bool {
	_, allowed := g.allowed[r.Key]
	uid, approved := g.approved[r.Key]
	return allowed && !r.needsApproval || approved && uid == r.uid
}

// collecting returns how long the guard still waits for further deletions.
func (g *guard) collecting(now time.Time) time.Duration {
	if len(g.undecided) == 0 {
		return 0
	}
	until := g.changed.Add(guardSettles)
	if most := g.since.Add(guardCollects); most.Before(until) {
		until = most // A steady stream of deletions must not delay itself.
	}
	return until.Sub(now)
}

// approve allows the deletions of the token that are still pending. A token works once.
func (g *guard) approve(token string) {
	if token == "" {
		return
	}
	if slices.Contains(g.recorded, token) && (stands(token, g.pending.digest()) || stands(token, g.pending.othersDigest())) {
		g.issue()
	}
	at := slices.IndexFunc(g.issued, func(i issue) bool { return i.token == token })
	if at < 0 {
		return
	}
	for key, r := range g.issued[at].removals {
		if is, still := g.pending.byKey[key]; still && is.uid == r.uid {
			g.pending.remove(key)
			g.approved[key] = r.uid
		}
	}
	g.issued, g.recorded = slices.Delete(g.issued, 0, at+1), nil
	g.used, g.recast = token, true
}

// usedToken returns the last approved token, which approves nothing any more.
func (g *guard) usedToken() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}

// judge divides the collected and the pending deletions into allowed and pending ones.
func (g *guard) judge(copies map[string]int, now time.Time) {
	g.copies, g.judged = copies, now
	maps.DeleteFunc(g.lost, func(_ Key, l loss) bool { return now.Sub(l.at) > guardWindow })
	excess := g.excess()
	for key, r := range g.undecided {
		if excess[r.group()] {
			g.pending.add(r)
			continue
		}
		g.allowed[key] = r
	}
	clear(g.undecided)
	for key, r := range g.pending.byKey {
		if !r.needsApproval && !excess[r.group()] {
			g.pending.remove(key)
			g.allowed[key] = r
		}
	}
}

// issue creates tokens for the pending deletions if they have none, and remembers the deletions, because a user may
// read the tokens.
func (g *guard) issue() {
	if digest := g.pending.othersDigest(); g.tokenOf(digest) == "" && digest != "" {
		others := maps.Clone(g.pending.byKey)
		maps.DeleteFunc(others, func(_ Key, r removal) bool { return r.kept() })
		g.issued = append(g.issued, issue{g.newToken(digest), others})
	}
	if digest := g.pending.digest(); g.tokenOf(digest) == "" && digest != "" {
		g.issued = append(g.issued, issue{g.newToken(digest), maps.Clone(g.pending.byKey)})
	}
	g.issued = g.issued[max(0, len(g.issued)-issues):]
}

// tokenOf returns the token of the deletions with the digest; empty if they have no token.
func (g *guard) tokenOf(digest string) string {
	if at := slices.IndexFunc(g.issued, func(i issue) bool { return stands(i.token, digest) }); at >= 0 {
		return g.issued[at].token
	}
	return ""
}

// newToken returns a token for the deletions with the digest: the recorded one from before a restart, or a new one that
// no user can know yet.
func (g *guard) newToken(digest string) string {
	if at := slices.IndexFunc(g.recorded, func(token string) bool { return stands(token, digest) }); at >= 0 {
		return g.recorded[at]
	}
	return digest + "-" + rand.Text()
}

// stands reports whether a token is for the deletions with the digest.
func stands(token, digest string) bool {
	return digest != "" && strings.HasPrefix(token, digest+"-")
}

// resume takes over the tokens from before a start: the same deletions get the same token.
func (g *guard) resume(held *corev1alpha1.DeletionsHeld) {
	if held == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recorded = slices.DeleteFunc([]string{held.Token, held.OthersToken}, func(token string) bool { return token == "" })
	g.resumed = g.now()
}

// went notes that a copy was deleted.
func (g *guard) went(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, unasked := g.allowed[key]; unasked {
		now := g.now()
		maps.DeleteFunc(g.lost, func(_ Key, l loss) bool { return now.Sub(l.at) > guardWindow })
		g.lost[key] = loss{r.group(), now}
	}
	g.drop(key)
}

// stays notes that a copy is not to be deleted any more, or exists again.
func (g *guard) stays(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.lost, key)
	g.drop(key)
}

// done notes that a copy is not to be deleted for now: it does not exist, stays unchanged, or its deletion failed.
func (g *guard) done(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(key)
}

func (g *guard) drop(key Key) {
	delete(g.allowed, key)
	delete(g.approved, key)
	delete(g.undecided, key)
	if _, is := g.pending.byKey[key]; is {
		g.pending.remove(key)
		g.judged = time.Time{}
	}
}

// says returns the message for a copy that is pending. Users who can read only the object see the message, so it
// describes no other namespace.
func (g *guard) says(r removal, cluster string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.needsApproval {
		const format = "%s, and the cluster has objects of the type, which would be deleted with the copy: " +
			"`refract approve %s` shows it and approves the deletion; objects that return to the hub stay"
		return fmt.Sprintf(format, r.cause.of(), cluster)
	}
	const format = "%s, wait for approval of their deletion: `refract approve %s` shows and approves them; objects that return to the hub stay"
	return fmt.Sprintf(format, g.describe(r.group(), g.pending.byGroup[r.group()]), cluster)
}

// describe describes the pending part of a group: number, namespace and cause.
func (g *guard) describe(of group, n int) string {
	held := g.held(of, n)
	return member.PendingGroup(&held)
}

func (g *guard) held(of group, n int) corev1alpha1.HeldDeletions {
	return corev1alpha1.HeldDeletions{Namespace: of.namespace, Cause: of.cause.ofMany(), Copies: int64(n), Of: int64(g.copies[of.namespace])}
}

// groupsShown is the maximum number of groups in a status.
const groupsShown = 5

// guardResumes is the maximum time after a start until deletions that were pending before are pending again.
const guardResumes = time.Minute

// show returns the pending deletions, nil for none, and remembers the deletions of their tokens. known is
// false while deletions from before a start may become pending again.
func (g *guard) show() (held *corev1alpha1.DeletionsHeld, keys []Key, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pending.byKey) == 0 {
		if g.shown != g.pending.sum {
			g.issued, g.recorded = nil, nil // Later deletions get new tokens.
		}
		known = len(g.recorded) == 0 || g.now().Sub(g.resumed) > guardResumes
		g.shown, g.recast = g.pending.sum, false
		return nil, nil, known
	}
	g.issue()
	g.shown, g.recast = g.pending.sum, false
	tally, total := g.pending.byGroup, 0
	for _, n := range g.copies {
		total += n
	}
	groups := slices.SortedFunc(maps.Keys(tally), func(a, b group) int {
		return cmp.Or(cmp.Compare(tally[b], tally[a]), strings.Compare(a.namespace, b.namespace), strings.Compare(string(a.cause), string(b.cause)))
	})
	held = &corev1alpha1.DeletionsHeld{
		Token: g.tokenOf(g.pending.digest()), OthersToken: g.tokenOf(g.pending.othersDigest()),
		Copies: int64(len(g.pending.byKey)), Of: int64(total), HoldData: int64(g.pending.kept),
	}
	for _, of := range groups[:min(len(groups), groupsShown)] {
		held.Groups = append(held.Groups, g.held(of, tally[of]))
	}
	return held, slices.Collect(maps.Keys(g.pending.byKey)), true
}

// outdated reports whether the pending deletions, or their causes, have changed since they were shown.
func (g *guard) outdated() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.recast || g.shown != g.pending.sum
}

// keys returns the keys of the pending deletions.
func (g *guard) keys() []Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.pending.byKey))
}
