package propagation

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/member"
)

// DefaultGuard is the share of a namespace's copies on a member that may be deleted unasked,
// in percent.
const DefaultGuard = 30

// unguarded is the share by which nothing waits for approval, neither on a member nor across the fleet.
const unguarded = 100

// A member may lose at most guardCopies of a namespace in one pass unasked, or the
// share. So that many small steps are as one big one, what it lost within the window
// and did not get back must not be more than the share either, once that is
// guardPasses.
const (
	guardCopies = 10
	guardPasses = 30
)

const (
	// guardSettles is how long the guard waits for what else is to be deleted.
	guardSettles = time.Second
	// guardWindow is how long it counts what went.
	guardWindow = time.Minute
)

// guard stands between a member and the removal of copies that nobody has asked for.
// It collects what is to be deleted, and when that is more than may be unasked, none of it
// is until somebody has approved exactly this: a hub that was emptied by mistake, or
// was set back to an old state, must not empty the fleet. Each namespace is judged by
// itself, and each cause in it, so that one tenant does not stop the others; see
// [guard.excess] for what is judged beyond that.
type guard struct {
	share float64
	all   bool // Whether copies are judged, too, whose objects somebody deleted by a call.

	mu        sync.Mutex
	undecided map[Key]removal   // To be deleted; it is not known yet what else is.
	since     time.Time         // When the first of them was added,
	changed   time.Time         // and when the last.
	pending   pendingRemovals   // To be deleted, and more than may be unasked.
	shown     [4]uint64         // The digests of what was pending when that was shown last.
	recast    bool              // Whether one of them is pending for another cause since.
	used      string            // The token that was approved last.
	recorded  []string          // The tokens that were given before a start, as they are reported.
	resumed   time.Time         // When that was read.
	issued    []issue           // What tokens were given for, the newest last.
	allowed   map[Key]removal   // May be deleted unasked.
	approved  map[Key]types.UID // May be deleted, as somebody said so.
	lost      map[Key]loss      // Went unasked within the window.
	copies    map[string]int    // That the member had when it was last judged, by namespace.
	judged    time.Time         // When that was; zero if what is held is less since.
	now       func() time.Time
}

// removal is a copy that is to be deleted.
type removal struct {
	Key

	uid   types.UID
	cause cause
	// needsApproval is whether it must be approved, whatever else is deleted: because more
	// goes with it than itself, or because it is kept.
	needsApproval bool
}

// kept reports whether the copy needs approval because of its data, see [holding].
func (r *removal) kept() bool {
	return r.needsApproval && r.GroupResource != crdResource.GroupResource()
}

// group is what is judged together.
type group struct {
	namespace string
	cause     cause
}

func (r *removal) group() group { return group{r.Namespace, r.cause} }

// loss is a copy that went.
type loss struct {
	group

	at time.Time
}

// issue is what a token stands for.
type issue struct {
	token    string
	removals map[Key]removal
}

// issues is for how many sets of copies a token is remembered: while somebody reads
// what is to be deleted and approves it, more may be added.
const issues = 32

// guardCollects is how long the guard waits at most for what else is to be deleted.
const guardCollects = 5 * guardSettles

func newGuard(percent int, now func() time.Time) *guard {
	return &guard{
		share:     float64(percent) / 100,
		undecided: map[Key]removal{}, pending: newPendingRemovals(), allowed: map[Key]removal{}, approved: map[Key]types.UID{}, lost: map[Key]loss{},
		now: now,
	}
}

// answer is what the guard says of a removal.
type answer int

const (
	notYet answer = iota // Ask again after a while.
	allow                // It may be deleted now.
	deny                 // It may not be deleted until that is approved.
)

// ask returns what to do with a copy that is to be deleted. Copies returns how many the member
// has, by namespace; approved is the token that somebody approved.
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
	case r.needsApproval: // It is pending alone: it says nothing about others.
		delete(g.undecided, r.Key)
		delete(g.allowed, r.Key)
		g.copies = copies()
		g.pending.add(r)
		return deny, 0
	case isPending:
		g.pending.add(r) // It may need less by now, or have another cause.
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

// await is told of a copy that is to be deleted while nobody knows yet what else is: it is judged
// with that, when the first is asked about. Until then no time passes for the guard.
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

// passes reports whether the copy may be deleted now. What was allowed because it was little is
// asked about again if it needs approval since.
func (g *guard) passes(r *removal) bool {
	_, allowed := g.allowed[r.Key]
	uid, approved := g.approved[r.Key]
	return allowed && !r.needsApproval || approved && uid == r.uid
}

// collecting is how long to wait for what else is to be deleted.
func (g *guard) collecting(now time.Time) time.Duration {
	if len(g.undecided) == 0 {
		return 0
	}
	until := g.changed.Add(guardSettles)
	if most := g.since.Add(guardCollects); most.Before(until) {
		until = most // A steady stream must not hold itself up.
	}
	return until.Sub(now)
}

// approve allows what the token was given for and is still pending. A token approves once.
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

// usedToken returns the token that was approved last: it stands for nothing any more.
func (g *guard) usedToken() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}

// judge sorts what was collected, and what is pending, into what may be deleted and what may not.
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

// toll is what removals sum to, and what they are taken from.
type toll struct {
	now, pending int // Copies that are to be deleted, of those that there are;
	lost, most   int // with those that went within the window, of all that there were.
}

func (t *toll) add(o toll) {
	t.now, t.pending, t.lost, t.most = t.now+o.now, t.pending+o.pending, t.lost+o.lost, t.most+o.most
}

func (t *toll) subtract(o toll) {
	t.add(toll{now: -o.now, pending: -o.pending, lost: -o.lost, most: -o.most})
}

// excess returns the groups of which more is to be deleted than may be unasked.
//
// A namespace is judged by itself, for each cause. A cause that is [cause.wide] is
// judged over the whole member, too. Once the hub has forgotten much, it was set back,
// and nothing that it says is certain: all causes wait, in a namespace of which it has,
// and everywhere if it has in several, see [rest] and [shared]. What tenants can bring
// about is judged over the namespaces that are not held by themselves, but for the one
// that loses most: many that lose little each are a mistake of somebody who has rights
// in all of them, and no single tenant can use up what the others may lose.
func (g *guard) excess() map[group]bool {
	spaces, groups := g.tolls()
	excess, full := map[group]bool{}, map[string]bool{}
	exceed := func(which func(group) bool) {
		for of := range groups {
			excess[of] = excess[of] || which(of)
		}
	}
	var member toll
	forgotten, unknown := map[string]toll{}, map[string]bool{}
	for name, of := range spaces {
		member.add(of)
		of.add(groups[group{name, causeForgotten}])
		forgotten[name] = of
	}
	wide := map[cause]toll{}
	for of, t := range groups {
		sum := wide[of.cause]
		sum.add(t)
		wide[of.cause] = sum
		t.add(spaces[of.namespace])
		excess[of] = g.much(t)
		full[of.namespace] = full[of.namespace] || excess[of]
		unknown[of.namespace] = unknown[of.namespace] || (excess[of] && of.cause == causeForgotten)
	}
	for c, t := range wide {
		t.add(member)
		if c.wide() && g.much(t) {
			exceed(func(of group) bool { return of.cause == c })
		}
	}
	everywhere := g.much(rest(forgotten)) || g.much(shared(forgotten))
	exceed(func(of group) bool { return everywhere || unknown[of.namespace] })
	if everywhere {
		return excess
	}
	shares := map[string]toll{}
	for name, of := range spaces {
		if !full[name] {
			shares[name] = of
		}
	}
	for of, t := range groups {
		if share, counts := shares[of.namespace]; counts && !of.cause.wide() {
			share.add(t)
			shares[of.namespace] = share
		}
	}
	if g.much(rest(shares)) {
		exceed(func(of group) bool { _, counts := shares[of.namespace]; return counts && !of.cause.wide() })
	}
	return excess
}

// rest sums up all namespaces but the one that loses most.
func rest(shares map[string]toll) toll {
	sum, _ := apart(shares)
	return sum
}

// shared sums up all namespaces, but counts of the one that loses most no more losses than all
// others have together, so that the users of one namespace cannot have everybody wait.
func shared(shares map[string]toll) toll {
	sum, most := apart(shares)
	now, lost := max(0, most.now-sum.now), max(0, most.lost-sum.lost)
	sum.add(most)
	sum.subtract(toll{now: now, pending: now, lost: lost, most: lost})
	return sum
}

// apart returns what the namespace that loses most sums to, and all others together.
func apart(shares map[string]toll) (others, most toll) {
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		t := shares[name]
		others.add(t)
		if t.lost > most.lost {
			most = t
		}
	}
	others.subtract(most)
	return others, most
}

// tolls returns what namespaces have and had, and what groups lose of that.
func (g *guard) tolls() (spaces map[string]toll, groups map[group]toll) {
	spaces, groups = map[string]toll{}, map[group]toll{}
	has := func(namespace string, t toll) {
		sum := spaces[namespace]
		sum.add(t)
		spaces[namespace] = sum
	}
	loses := func(of group, t toll) {
		sum := groups[of]
		sum.add(t)
		groups[of] = sum
	}
	for namespace, n := range g.copies {
		has(namespace, toll{pending: n, most: n})
	}
	for key := range g.approved { // They are no loss.
		has(key.Namespace, toll{pending: -1, most: -1})
	}
	for _, l := range g.lost {
		has(l.namespace, toll{most: 1})
		loses(l.group, toll{lost: 1})
	}
	for _, removals := range []map[Key]removal{g.undecided, g.allowed, g.pending.byKey} {
		for _, r := range removals {
			if !r.needsApproval {
				loses(r.group(), toll{now: 1, lost: 1})
			}
		}
	}
	return spaces, groups
}

// much reports whether that is more than may be deleted unasked.
func (g *guard) much(t toll) bool {
	return g.over(t.now, guardCopies, t.pending) || g.over(t.lost, guardPasses, t.most)
}

func (g *guard) over(n, least, of int) bool {
	return g.share < 1 && n > least && float64(n) > g.share*float64(of)
}

// issue gives what is pending its tokens, if it has none yet, and remembers what they stand for, as somebody may have read them.
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

// tokenOf returns the token that was given for what has the digest; empty if none was.
func (g *guard) tokenOf(digest string) string {
	if at := slices.IndexFunc(g.issued, func(i issue) bool { return stands(i.token, digest) }); at >= 0 {
		return g.issued[at].token
	}
	return ""
}

// newToken returns a token for what has the digest: that which was reported before a start, or one that nobody can know yet.
func (g *guard) newToken(digest string) string {
	if at := slices.IndexFunc(g.recorded, func(token string) bool { return stands(token, digest) }); at >= 0 {
		return g.recorded[at]
	}
	return digest + "-" + rand.Text()
}

// stands reports whether a token was given for what has the digest.
func stands(token, digest string) bool {
	return digest != "" && strings.HasPrefix(token, digest+"-")
}

// resume tells the guard what was held before a start: what is the same has the same token.
func (g *guard) resume(held *corev1alpha1.DeletionsHeld) {
	if held == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recorded = slices.DeleteFunc([]string{held.Token, held.OthersToken}, func(token string) bool { return token == "" })
	g.resumed = g.now()
}

// went is told that a copy was deleted.
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

// stays is told that a copy is not to be deleted any more, or is there again.
func (g *guard) stays(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.lost, key)
	g.drop(key)
}

// done is told that nothing is to be asked about a copy for now: it is not there, or
// could not be deleted.
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

// says tells of a copy that is pending what it is pending with, to those who may see its
// object: of other namespaces it says nothing.
func (g *guard) says(r removal, cluster string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.needsApproval {
		const format = "%s, and the cluster has objects of the type, which would go with the copy: " +
			"`refract approve %s` shows it and lets it go, and what comes back to the hub stays"
		return fmt.Sprintf(format, r.cause.of(), cluster)
	}
	const format = "%s, wait until somebody approves that they go: `refract approve %s` shows them and lets them go, and what comes back to the hub stays"
	return fmt.Sprintf(format, g.describe(r.group(), g.pending.byGroup[r.group()]), cluster)
}

// describe says how much of a group is pending, where and why.
func (g *guard) describe(of group, n int) string {
	held := g.held(of, n)
	return member.PendingGroup(&held)
}

func (g *guard) held(of group, n int) corev1alpha1.HeldDeletions {
	return corev1alpha1.HeldDeletions{Namespace: of.namespace, Cause: of.cause.ofMany(), Copies: int64(n), Of: int64(g.copies[of.namespace])}
}

// groupsShown is of how many groups is told.
const groupsShown = 5

// guardResumes is how long it takes at most after a start until what was held before is held again.
const guardResumes = time.Minute

// show returns what is pending, nil when nothing is, and names it: what the tokens stand for now is remembered.
// It is not known as long as what was held before a start may be held again.
func (g *guard) show() (held *corev1alpha1.DeletionsHeld, keys []Key, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pending.byKey) == 0 {
		if g.shown != g.pending.sum {
			g.issued, g.recorded = nil, nil // What is held later is another time.
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

// outdated reports whether something else is pending than was shown last, or for another cause.
func (g *guard) outdated() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.recast || g.shown != g.pending.sum
}

// keys returns what is pending.
func (g *guard) keys() []Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.pending.byKey))
}

// pendingRemovals are the removals that somebody has to approve, counted as they come and
// go: thousands may, one after the other.
type pendingRemovals struct {
	byKey   map[Key]removal
	byGroup map[group]int
	much    map[group]int // Those that are pending because they are much, and not for themselves.
	sum     [4]uint64     // Of the digests of all.
	kept    int           // How many need approval because of their data,
	keptSum [4]uint64     // and the sum of their digests.
}

func newPendingRemovals() pendingRemovals {
	return pendingRemovals{byKey: map[Key]removal{}, byGroup: map[group]int{}, much: map[group]int{}}
}

// add adds a removal, in the place of one of the same copy.
func (p *pendingRemovals) add(r removal) {
	p.remove(r.Key)
	p.byKey[r.Key] = r
	p.count(r, 1)
}

func (p *pendingRemovals) remove(key Key) {
	if r, is := p.byKey[key]; is {
		delete(p.byKey, key)
		p.count(r, -1)
	}
}

func (p *pendingRemovals) count(r removal, n int) {
	add(p.byGroup, r.group(), n)
	if !r.needsApproval {
		add(p.much, r.group(), n)
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%s", r.GroupResource, r.Namespace, r.Name, r.uid))
	for i := range p.sum {
		p.sum[i] += uint64(n) * binary.BigEndian.Uint64(digest[8*i:])
		if r.kept() {
			p.keptSum[i] += uint64(n) * binary.BigEndian.Uint64(digest[8*i:])
		}
	}
	if r.kept() {
		p.kept += n
	}
}

func add(counts map[group]int, of group, n int) {
	if counts[of] += n; counts[of] == 0 {
		delete(counts, of)
	}
}

// digest names the copies that are pending, in whatever order they became so; it is
// empty if none is. It is the same after a restart.
func (p *pendingRemovals) digest() string {
	if len(p.byKey) == 0 {
		return ""
	}
	return digestOf(p.sum)
}

// othersDigest names the copies that are pending and not kept; it is empty if there are none, or no others.
func (p *pendingRemovals) othersDigest() string {
	if p.kept == 0 || p.kept == len(p.byKey) {
		return ""
	}
	sum := p.sum
	for i := range sum {
		sum[i] -= p.keptSum[i]
	}
	return digestOf(sum)
}

func digestOf(sum [4]uint64) string {
	var text []byte
	for _, part := range sum {
		text = binary.BigEndian.AppendUint64(text, part)
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])[:16]
}
