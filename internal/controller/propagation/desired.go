package propagation

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/rescue"
	variants "refract.dev/internal/variant"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/podtemplate"
	"refract.dev/reference"
	"refract.dev/tree"
)

// Reasons of the condition Synced, and of statuses.
const (
	reasonSynced            = "Synced"
	reasonProgressing       = "Progressing"
	reasonNoClusterMatches  = "NoClusterMatches"
	reasonMadeByEachCluster = "MadeByEachCluster"
	reasonPolicyNotFound    = "PolicyNotFound"
	reasonPolicyDeleted     = "PolicyDeleted"
	reasonInvalidPolicy     = "InvalidPolicy"
	reasonInvalidLabel      = "InvalidLabel"
	reasonDryRun            = "DryRun"
	reasonOverrideFailed    = "OverrideFailed"
	reasonAlreadyExists     = "AlreadyExists"
	reasonRejected          = "Rejected"
	reasonTypeNotServed     = "TypeNotServed"
	reasonWebhookFailed     = "WebhookFailed"
	reasonUnreachable       = "Unreachable"
	reasonUnreadable        = "Unreadable"
	reasonInternalError     = "InternalError"
	reasonWriteFailed       = "WriteFailed"
	reasonClusterNotReady   = "ClusterNotReady"
	reasonBeingDeleted      = "BeingDeleted"
	reasonLeaderGone        = "LeaderGone"
	reasonSourceGone        = "SourceGone"
	reasonNoLongerPlaced    = "NoLongerPlaced"
	reasonDeletionFailed    = "DeletionFailed"
	reasonAwaitingApproval  = refractv1alpha1.ReasonAwaitingApproval
	reasonClusterLeaves     = "ClusterLeaves"
	reasonChangedAgain      = "ChangedAgainAndAgain"
	reasonRolloutPolicy     = "RolloutPolicyNotUsable"
	reasonRevisionTooLarge  = "RevisionTooLarge"
	reasonWaitsForFollower  = "WaitsForFollower"
	reasonBackingOff        = "BackingOff"
	reasonUnconverted       = "Unconverted"
	reasonOutcomeUnknown    = "OutcomeUnknown"
	reasonKeepsContent      = "KeepsContent"
	reasonAwaitsRollout     = "AwaitsRollout"
)

// desiredState is what should be true of one object on all clusters.
type desiredState struct {
	seq        int64     // Grows with each desired state of the key.
	made       time.Time // When.
	gvr        schema.GroupVersionResource
	kind       string
	uid        types.UID
	generation int64

	// gone: there is no such object, or it asks for nothing: copies are removed. The
	// cause is why.
	gone  bool
	cause cause
	// of is the UID of the object that is gone; empty if it is not known. Recalled is whether the cause is from before a restart.
	of       types.UID
	recalled bool
	// among are the clusters that it was decided for, by name; nil for all. From others nothing is removed because it is not placed there.
	among []placement.Cluster
	// naming is how often clusters had got other names when the decision began.
	naming int64
	// blocked says why nothing may be written or removed for now; empty if it may.
	blocked, blockedMessage string
	// dryRun: nothing is written or removed; what would be is reported.
	dryRun  bool
	keeping placement.Keeping

	targets  map[string]*target // By cluster.
	variants []*variant
	text     int // Bytes of what is said of their changes.
	warned   int // Bytes of warnings about them.
	bodies   int // Bytes of all of them, kept or not.
	warnings []string
	// propagation is the policy that placed the object; overrides those that it
	// was rendered with; deleted those that it names and that are deleted.
	propagation *refractv1alpha1.PolicyReference
	overrides   []refractv1alpha1.PolicyReference
	deleted     []refractv1alpha1.PolicyReference
	placed      []placement.Target // By cluster.
	hash        string             // Of what the placement was decided on.
	// chosenBy is the policy that chose the clusters by name or by label; nil if none did.
	chosenBy *refractv1alpha1.PolicyReference
	// held is a change of the placement that waits for approval; nil if none does.
	held *heldPlacement
	// led is whether this replica leads, and decided itself where the object belongs.
	led bool
	// follows are what the object travels with.
	follows []Key
	// scales is the workload that it scales; zero if it is no autoscaler.
	scales Key
	// followers are what travels with the object, and to which clusters.
	followers map[Key][]string
	// withheld are what would travel with the object to these clusters, were it known
	// that somebody may have it so. What is there stays.
	withheld map[Key][]string
	previous previous // What the desired state was made with.
	// governed is by which rollout policy the object changes; nil if by none. With it goes what
	// the newest revision would change, while not every cluster has that.
	governed *governance
	rollout  *rolloutPlan
	// conversions are the object in other versions, for clusters that do not serve the one that the hub prefers.
	conversions *conversions
}

// considers reports whether it was decided whether the object is placed on a cluster.
func (p *desiredState) considers(name string) bool {
	if p.gone || p.among == nil {
		return true
	}
	_, found := slices.BinarySearchFunc(p.among, name, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
	return found
}

// target is what should be true on one cluster.
type target struct {
	variant *variant // Nil when err is not.
	// err says why the object could not be rendered for the cluster, which keeps
	// what it has.
	err      error
	replicas *int64 // The cluster's share, if the object is divided.
	policies []refractv1alpha1.PolicyReference
	warnings []string
	// from is what it is rendered from, if that is not the newest revision; generation is that
	// of the object.
	from       *material
	generation int64
}

// variant is one of the distinct contents.
type variant struct {
	*content

	changes []string // As a report shows them; none beyond the first variants.
}

// previous is what must be remembered of the desired states before.
type previous struct {
	// uid is that of the object; another object of the name begins anew.
	uid types.UID
	// placed are the clusters that have, or may have, a copy.
	placed []placement.Target
	hash   string // Of what that was decided on.
	// chosenBy is the policy that chose them by name or by label, without generation; nil if none did.
	chosenBy *refractv1alpha1.PolicyReference
	// rendered are override policies that copies were rendered with, without
	// generation.
	rendered []tree.Policy
	// follows are what the object travelled with.
	follows []Key
	// cause is why the object is deleted; empty while it is not.
	cause cause
	// asked is what users were asked about a change of the placement that waits; zero if none does. It is that of the
	// record unless led, which is whether this replica led when it decided.
	asked placement.Question
	led   bool
	// rollout is what was written down of its rollout last; nil if that is nothing. Another object of the name goes on from there: it
	// is what the clusters have.
	rollout *refractv1alpha1.RolloutStatus
	// recalled is whether the cause is from before a restart.
	recalled bool
	// statuses and warned are what was reported before a restart.
	statuses []refractv1alpha1.ClusterStatus
	warned   []string
}

// followed is what an object travels with.
type followed struct {
	clusters []string // Sorted.
	by       []Key
	// failing are clusters for which one of them cannot be rendered, so that nobody
	// knows what it refers to there, or from which the key is withheld: what is there
	// stays.
	failing map[string]bool
	// blocked is whether one of them cannot say now where it goes; unknown are those that
	// have not been decided about. Until they are no cluster is lost.
	blocked bool
	unknown []Key
	// until is for how long one of them is treated as if it were there, though it is gone; zero if none is. Unsure is
	// whether there are no others, and this process does not know what it was.
	until  time.Duration
	unsure bool
	// orphan is which copies of what follows stay with those of what it follows.
	orphan orphaning
}

// orphaning is placement.Keeping.Orphan, of which the greater is the one that has
// more copies stay.
type orphaning string

// inputs are what a desired state depends on besides the object.
type inputs struct {
	hub         string // UID of the hub.
	clusters    []placement.Cluster
	propagation func(tree.Policy) *placement.Policy
	override    func(tree.Policy) *override.Policy
	followed    followed
	// resource returns the resource of a kind that the hub serves.
	resource func(schema.GroupKind) (schema.GroupResource, bool)
	// unlisted reports whether the hub does not let the objects of a type be listed; nil if it lets those of all.
	unlisted func(schema.GroupResource) bool
	// may reports whether an override policy may have an object of a namespace refer to
	// something.
	may func(policy tree.Policy, namespace string, ref reference.Reference) bool
	// recorded, when it is not nil, is where somebody else decided that the object
	// belongs: another replica of the controllers, which leads.
	recorded *previous
	// governed is by which rollout policy the object changes; nil if by none.
	governed *governance
	// approved is the token by which a change of the placement is approved for the object alone.
	approved string
	// versions are those in which the hub serves the type, the preferred one first, and older those in which clusters serve it that do
	// not serve the preferred one. Convert returns the object in another version.
	versions []string
	older    map[string][]string
	convert  func(version string) (*unstructured.Unstructured, error)
	// together is what the objects of the namespace would leave together; nil if they may.
	together *placement.Loss
	// unguarded is whether no change of a placement waits for approval.
	unguarded bool
}

// decideSafely is decide, which may stumble over what somebody wrote: then the object is
// blocked, with what it has, and says why.
func decideSafely(key Key, src source, was previous, s *inputs, log logr.Logger) *desiredState {
	p, err := func() (p *desiredState, err error) {
		defer rescue.To(&err, log, "decide", "key", key)
		return decide(src, was, s), nil
	}()
	obj := src.object
	switch {
	case err == nil:
		p.warnings = fewer(p.warnings)
		return p
	case obj == nil:
		return p
	}
	if was.uid != obj.GetUID() {
		was = previous{uid: obj.GetUID()}
	}
	p = &desiredState{
		gvr: src.gvr, kind: src.kind, targets: map[string]*target{}, uid: obj.GetUID(), generation: obj.GetGeneration(),
		placed: was.placed, hash: was.hash, chosenBy: was.chosenBy, follows: was.follows, previous: was, governed: s.governed,
		led: s.recorded == nil,
	}
	return p.block(reasonInternalError, err.Error())
}

// decide makes the desired state of one object. It is pure, but for what the inputs read.
func decide(src source, was previous, s *inputs) *desiredState {
	obj := src.object
	p := &desiredState{gvr: src.gvr, kind: src.kind, targets: map[string]*target{}, among: s.clusters, led: s.recorded == nil}
	if src.withdrawn != nil && p.staysWithdrawn(src.withdrawn, src, was, s) {
		return p
	}
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		p.gone = true
		return p
	}
	annotations := obj.GetAnnotations()
	keeping, doubts := placement.KeepingOf(annotations)
	leaders := s.followed
	if keeping.DisableFollowing {
		leaders = followed{}
	}
	ref, asks, warnings, err := placement.Named(obj.GetLabels(), obj.GetNamespace())
	if !asks && len(leaders.by)+len(leaders.unknown) == 0 {
		if !p.staysWithdrawn(obj, src, was, s) {
			p.gone, p.keeping.Keep = true, keeping.Keep
		}
		return p
	}
	p.uid, p.generation, p.keeping, p.follows = obj.GetUID(), obj.GetGeneration(), keeping, slices.Concat(leaders.by, leaders.unknown)
	p.dryRun = keeping.DryRun
	p.keeping.Orphan = string(max(orphaning(keeping.Orphan), leaders.orphan))
	if was.uid != p.uid {
		was = previous{uid: p.uid}
	}
	p.previous, p.governed = was, s.governed
	p.warnings = slices.Concat(warnings, doubts, placement.Ignored(annotations))
	if s.governed != nil {
		p.warnings = append(p.warnings, s.governed.warnings...)
	}
	if reason, why := hindrance(src, err, !asks && leaders.unsure); reason != "" {
		return p.block(reason, why)
	}
	policies, blocked := p.findOverrides(obj, was, s)
	if blocked {
		return p
	}
	switch g := s.governed; {
	case g == nil:
	case g.blocked != "":
		return p.block(g.blocked, g.hold)
	case g.policy == nil && g.recorded == nil && g.led == nil:
		// Nobody knows how it is to change, nor what it was.
		return p.block(reasonRolloutPolicy, g.hold)
	}
	var policy *placement.Policy
	if asks {
		policy = s.propagation(ref)
	}
	if s.recorded != nil {
		p.placed, p.hash, p.chosenBy = s.recorded.placed, s.recorded.hash, s.recorded.chosenBy
	} else if blocked := p.place(obj, ref, asks, policy, was, s); blocked {
		return p
	}
	own := p.placed
	p.scales = scaledKey(obj, s)
	if s.recorded == nil { // They are among those that were recorded.
		p.addFollowed(leaders.on(was.placed))
	}
	author := ref
	if policy != nil {
		author = policy.Ref
	}
	now := &material{object: obj, policies: policies, generation: p.generation}
	rendered := p.render(now, author, s)
	if p.governed != nil {
		p.rollout = p.plan(now, sourceOf(s.hub, p.uid, p.gvr.GroupResource(), obj.GetNamespace(), obj.GetName()), s)
		p.governed.target.Allowed = now.allowed
	}
	if asks && !keeping.DisableFollowing && (policy == nil || !policy.DisableFollowers) {
		p.findFollowers(obj, own, rendered, s)
	}
	return p
}

// hindrance says why nothing may be written of an object that asks to be propagated; empty if it may. Invalid is what is wrong with
// its labels, and unsure whether it only travels with what is gone and was not known.
func hindrance(src source, invalid error, unsure bool) (reason, why string) {
	if why := placement.Native(src.gvr.GroupResource(), src.object); why != "" {
		return reasonMadeByEachCluster, why
	}
	if why := placement.Lacking(src.object.GetAnnotations()); why != "" {
		return reasonUnconverted, why
	}
	switch {
	case invalid != nil:
		return reasonInvalidLabel, invalid.Error()
	case unsure:
		return reasonLeaderGone, "what the object travelled with is not on the hub; the copies stay as they are for a minute, in case it comes back"
	default:
		return "", ""
	}
}

func (p *desiredState) block(reason, message string) *desiredState {
	p.blocked, p.blockedMessage = reason, message
	// What the copies were rendered with is still true of them.
	p.overrides, p.deleted = nil, nil
	for _, ref := range p.previous.rendered {
		p.overrides = append(p.overrides, *policyReference(ref))
	}
	return p
}

// place decides on the clusters of an object that asks for some.
func (p *desiredState) place(obj *unstructured.Unstructured, ref tree.Policy, asks bool, policy *placement.Policy, was previous, s *inputs) (blocked bool) {
	switch {
	case !asks:
		return false
	case policy == nil && len(was.placed) == 0:
		p.block(reasonPolicyNotFound, fmt.Sprintf("%s does not exist; the object waits for it", ref))
		return true
	case policy == nil:
		// To lose a policy is no reason to take workloads away.
		p.warnings = append(p.warnings, fmt.Sprintf("%s was deleted: the object stays on the clusters that have it", ref))
		p.placed, p.hash, p.chosenBy = present(was.placed, s.clusters), was.hash, was.chosenBy
		return false
	}
	p.propagation = policyReference(policy.Ref)
	p.warnings = append(p.warnings, prefixed(policy.Ref, policy.Inert)...)
	by := policyReference(ref)
	asked := policy.Standing(was.asked)
	if p.dryRun {
		asked = placement.Question{} // It waits for the end of the dry run, and is asked about then.
	}
	decision, err := policy.Place(&placement.Request{
		Clusters: s.clusters, Previous: was.placed, Replicas: variants.Replicas(obj), Hash: was.hash, Frozen: p.keeping.Frozen,
		Narrowed: was.chosenBy != nil && *was.chosenBy == *by, Besides: s.followed.on(was.placed), Together: s.together,
		Approved: policy.Approved(asked, s.approved),
	})
	if err != nil {
		p.block(reasonInvalidPolicy, fmt.Sprintf("%s: %v", policy.Ref, err))
		return true
	}
	if decision.Held != nil && s.unguarded {
		decision = decision.Held.Approved()
	}
	p.placed, p.hash = decision.Targets, decision.Hash
	if decision.Narrowed {
		p.chosenBy = by
	}
	if decision.Held != nil {
		p.held = heldFor(decision.Held, approvalOf(ref.Kind, ref.Namespace, ref.Name), asked)
	}
	p.warnings = append(p.warnings, prefixed(policy.Ref, decision.Remarks())...)
	return false
}

// on returns the clusters of what an object travels with that was placed on some. What cannot say now where it
// goes leaves it there.
func (l *followed) on(was []placement.Target) []string {
	names := slices.Clone(l.clusters)
	for i := range was {
		if name := was[i].Cluster; l.blocked || len(l.unknown) > 0 || l.failing[name] {
			names = append(names, name)
		}
	}
	return names
}

// addFollowed adds clusters of what the object travels with.
func (p *desiredState) addFollowed(names []string) {
	for _, name := range names {
		if at, there := find(p.placed, name); !there {
			p.placed = slices.Insert(slices.Clone(p.placed), at, placement.Target{Cluster: name})
		}
	}
}

// present returns the targets on clusters that there are.
func present(targets []placement.Target, clusters []placement.Cluster) []placement.Target {
	return slices.DeleteFunc(slices.Clone(targets), func(t placement.Target) bool {
		_, there := slices.BinarySearchFunc(clusters, t.Cluster, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
		return !there
	})
}

// findOverrides returns the override policies in their order of effect.
func (p *desiredState) findOverrides(obj *unstructured.Unstructured, was previous, s *inputs) (policies []*override.Policy, blocked bool) {
	refs, warnings, err := override.Named(obj.GetLabels(), obj.GetNamespace())
	p.warnings = append(p.warnings, warnings...)
	if err != nil {
		p.block(reasonInvalidLabel, err.Error())
		return nil, true
	}
	for _, ref := range refs {
		policy := s.override(ref)
		switch {
		case policy != nil:
			policies = append(policies, policy)
			p.overrides = append(p.overrides, *policyReference(policy.Ref))
		case slices.Contains(was.rendered, ref):
			p.deleted = append(p.deleted, *policyReference(ref))
			p.warnings = append(p.warnings, fmt.Sprintf("%s: %s was deleted: what it changed is taken back", reasonPolicyDeleted, ref))
		default:
			p.block(reasonPolicyNotFound, fmt.Sprintf("%s does not exist; the object waits for it, so that it does not go out without its overrides", ref))
			return nil, true
		}
	}
	return policies, false
}

// arrival is a rendered object and the names of the clusters that it is for.
type arrival struct {
	object   *unstructured.Unstructured
	clusters []string
	// unasked is what override policies have it refer to without leave.
	unasked map[reference.Reference]tree.Policy
}

// render makes the targets, each from the revision that its cluster is to have; now is the newest. It
// returns what was rendered.
func (p *desiredState) render(now *material, by tree.Policy, s *inputs) (rendered []arrival) {
	var placed []placement.Target
	var all []*material
	parties := map[*material]*party{}
	for i := range s.clusters {
		at, found := find(p.placed, s.clusters[i].Name)
		if !found {
			continue
		}
		placed = append(placed, p.placed[at])
		m := p.governed.materialFor(s.clusters[i].Name, now)
		to := parties[m]
		if to == nil {
			to = &party{}
			parties[m] = to
			all = append(all, m)
		}
		to.clusters = append(to.clusters, s.clusters[i].Cluster)
		to.targets = append(to.targets, p.placed[at])
	}
	p.placed = placed
	now.allowed = parties[now] != nil // Nothing is found out about what is not rendered.
	for _, m := range all {
		rendered = append(rendered, p.renderFrom(m, parties[m], by, s)...)
	}
	return rendered
}

// party is the clusters that have one revision.
type party struct {
	clusters []match.Cluster
	targets  []placement.Target
}

// renderFrom makes the targets of one revision. It says of the revision whether its policies may have the object
// refer to what they bring in.
func (p *desiredState) renderFrom(m *material, to *party, by tree.Policy, s *inputs) (rendered []arrival) {
	if m.err != nil {
		p.fail(to, &target{err: m.err, from: m, generation: m.generation})
		return nil
	}
	for _, e := range m.byVersion(to, s) {
		if e.err != nil {
			p.fail(&e.party, &target{err: e.err, generation: m.generation})
			m.allowed = false // Nothing is known of what it would refer to.
			continue
		}
		rendered = append(rendered, p.renderVersion(m, e, by, s)...)
	}
	return rendered
}

// fail gives clusters a target that cannot be rendered.
func (p *desiredState) fail(to *party, t *target) {
	for i := range to.clusters {
		p.targets[to.clusters[i].Name] = t
	}
}

// renderVersion is renderFrom for the clusters that have one version.
func (p *desiredState) renderVersion(m *material, e *versioned, by tree.Policy, s *inputs) (rendered []arrival) {
	obj, clusters, targets, policies := e.object, e.clusters, e.targets, m.policies
	source := sourceOf(s.hub, p.uid, p.gvr.GroupResource(), obj.GetNamespace(), obj.GetName())
	secret := p.gvr.Group == "" && p.gvr.Resource == "secrets"
	for _, v := range variants.Render(obj, clusters, targets, by, policies...) {
		t := target{err: v.Err, warnings: warned(v.Warnings, maxText-p.warned), generation: m.generation, from: e.from}
		if e.note != "" {
			t.warnings = append(t.warnings, e.note)
		}
		p.warned += sizeOf(t.warnings)
		for _, i := range v.Policies {
			t.policies = append(t.policies, *policyReference(policies[i].Ref))
		}
		var without map[reference.Reference]tree.Policy
		if granted := m.kept && m.allowed; v.Err == nil && !granted {
			without, v.Err = unasked(obj, &v, clusters[v.Clusters[0]], policies, s)
			t.err = v.Err
			m.allowed = m.allowed && v.Err == nil && len(without) == 0
		}
		if v.Err == nil {
			c, err := encode(v.Object, p.gvr, source, &p.keeping, leftTo(&p.keeping, v.Changes))
			t.err = err
			if err == nil {
				t.variant = p.variant(c, v.Changes, secret)
			}
			rendered = append(rendered, arrival{object: v.Object, unasked: without})
		}
		// Clusters of one variant have one share.
		t.replicas = targets[v.Clusters[0]].Replicas
		for _, i := range v.Clusters {
			to := t.on(clusters[i].Name, s)
			p.targets[clusters[i].Name] = to
			if v.Err == nil && to == &t {
				last := &rendered[len(rendered)-1]
				last.clusters = append(last.clusters, clusters[i].Name)
			}
		}
	}
	return rendered
}

// findFollowers finds what travels with the object to the clusters that are its own: what its
// pod template refers to, on each cluster as it is there, and what it names.
func (p *desiredState) findFollowers(obj *unstructured.Unstructured, own []placement.Target, rendered []arrival, s *inputs) {
	var parties [][]string // The clusters of each arrival, and then all.
	for _, a := range rendered {
		clusters := slices.DeleteFunc(slices.Clone(a.clusters), func(cluster string) bool {
			_, its := find(own, cluster)
			return !its
		})
		parties = append(parties, clusters)
	}
	var all []string
	for i := range own {
		all = append(all, own[i].Cluster)
	}
	parties = append(parties, all)
	follows, withheld := travellers{}, travellers{}
	add := func(to travellers, resource schema.GroupResource, name string, party int) {
		key := Key{GroupResource: resource, NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}
		with := to[key]
		switch {
		case len(parties[party]) == 0:
		case len(with) == 0 && native(obj, resource, name) != "":
		default:
			to[key] = append(with, party)
		}
	}
	told := map[reference.Reference]bool{}
	for i, a := range rendered {
		for _, ref := range podtemplate.References(a.object) {
			to, id := follows, reference.Reference{Kind: ref.Kind, Name: ref.Name}
			if by, without := a.unasked[id]; without {
				to = withheld
				if !told[id] {
					told[id] = true
					p.warnings = append(p.warnings, fmt.Sprintf("%s %s, which %s brings in, does not travel with the object to where it is not yet: %v: %s",
						ref.Kind, ref.Name, anyGeneration(by), errUnasked, approve))
				}
			}
			add(to, schema.GroupResource{Group: ref.Group, Resource: ref.Resource}, ref.Name, i)
		}
	}
	for _, f := range p.named(obj, s) {
		add(follows, f.GroupResource, f.Name, len(rendered))
	}
	p.followers, p.withheld = follows.clusters(parties), withheld.clusters(parties)
	p.warnUnlisted(s)
}

// mostUnlisted is how many objects of a type are named that do not travel for want of a right.
const mostUnlisted = 5

// warnUnlisted warns of what does not travel with the object, as Refract does not have the right to see it.
func (p *desiredState) warnUnlisted(s *inputs) {
	if s.unlisted == nil {
		return
	}
	names := map[string][]string{}
	for key := range p.followers {
		if s.unlisted(key.GroupResource) {
			names[key.GroupResource.String()] = append(names[key.GroupResource.String()], key.Name)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(names)) {
		all := names[resource]
		slices.Sort(all)
		text := strings.Join(all[:min(len(all), mostUnlisted)], ", ")
		if more := len(all) - mostUnlisted; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		p.warnings = append(p.warnings, fmt.Sprintf("%s %s does not travel with the object: Refract may not list %s on the hub; "+
			"refract install --propagate, or propagation.types of the chart, permits a type", resource, text, resource))
	}
}

// native says why each cluster has an object of its own, of this name in the namespace of
// another; nothing if it has not.
func native(beside *unstructured.Unstructured, resource schema.GroupResource, name string) string {
	return placement.Native(resource, &metav1.ObjectMeta{Namespace: beside.GetNamespace(), Name: name})
}

// named returns what the object names itself, to travel with it.
func (p *desiredState) named(obj *unstructured.Unstructured, s *inputs) (followers []Key) {
	if obj.GetNamespace() == "" {
		return nil
	}
	for _, f := range p.keeping.Followers {
		kind := schema.GroupKind{Group: f.Group, Kind: f.Kind}
		resource, served := s.resource(kind)
		if !placement.Follows(kind) {
			continue // The annotation's reader has warned of it.
		}
		if !served {
			w := fmt.Sprintf("annotation %s: the hub serves no kind %s of group %q", corev1alpha1.FollowersAnnotation, f.Kind, f.Group)
			p.warnings = append(p.warnings, w)
			continue
		}
		if why := native(obj, resource, f.Name); why != "" {
			p.warnings = append(p.warnings, fmt.Sprintf("annotation %s: %s %s does not travel: %s", corev1alpha1.FollowersAnnotation, f.Kind, f.Name, why))
			continue
		}
		followers = append(followers, Key{GroupResource: resource, NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: f.Name}})
	}
	return followers
}

// travellers are what travels with an object, and with which parties of clusters.
type travellers map[Key][]int

// clusters returns to which clusters each of them travels. Those of the same parties share
// the list: an object may refer to thousands, on a thousand clusters.
func (t travellers) clusters(parties [][]string) map[Key][]string {
	if len(t) == 0 {
		return nil
	}
	to := make(map[Key][]string, len(t))
	shared := map[string][]string{}
	var id []byte
	for key, with := range t {
		id = id[:0]
		for _, party := range with {
			id = binary.AppendUvarint(id, uint64(party))
		}
		list, known := shared[string(id)]
		if !known {
			for _, party := range with {
				list = append(list, parties[party]...)
			}
			slices.Sort(list)
			list = slices.Compact(list)
			shared[string(id)] = list
		}
		to[key] = list
	}
	return to
}

// sourceOf is the annotation that a copy carries: the hub, the object there, and
// the copy itself. Controllers on a member that hand annotations down to what
// they derive from a copy do not make more copies by that.
func sourceOf(hub string, uid types.UID, resource schema.GroupResource, namespace, name string) string {
	return hub + "/" + string(uid) + copyName(resource, namespace, name)
}

func copyName(resource schema.GroupResource, namespace, name string) string {
	return "/" + resource.String() + "/" + namespace + "/" + name
}

// variant returns the one with this content: one that is there already, or another.
func (p *desiredState) variant(c *content, changes []tree.Change, secret bool) *variant {
	for _, is := range p.variants {
		if is.hash == c.hash {
			return is
		}
	}
	v := &variant{content: c}
	p.bodies += c.size
	if p.bodies > maxPlanBodies {
		c.body.Store(nil)
	}
	if len(p.variants) < maxVariants {
		v.changes = lines(changes, secret, maxText-p.text)
		p.text += sizeOf(v.changes)
	}
	p.variants = append(p.variants, v)
	return v
}

// followed are the objects that the object travels with, as it is reported.
func (p *desiredState) followed() (all []refractv1alpha1.FollowedObject) {
	for _, leader := range p.follows[:min(len(p.follows), mostFollowed)] {
		all = append(all, refractv1alpha1.FollowedObject{Resource: leader.GroupResource.String(), Name: leader.Name})
	}
	return all
}

// remember is the memory after p.
func (p *desiredState) remember(was previous) previous {
	if p.gone {
		was.cause, was.recalled, was.follows = p.cause, p.recalled, nil
		was.asked, was.led = placement.Question{}, p.led
		return was
	}
	if p.blocked != "" {
		// Copies of an earlier object of the name may still be where they were.
		return previous{
			uid: p.uid, placed: was.placed, hash: p.previous.hash, chosenBy: p.previous.chosenBy,
			rendered: p.previous.rendered, follows: p.previous.follows, rollout: p.governed.own(was.rollout),
			asked: p.held.question(), led: p.led,
		}
	}
	now := previous{
		uid: p.uid, placed: p.placed, hash: p.hash, chosenBy: p.chosenBy, follows: p.follows, rollout: p.governed.own(was.rollout),
		asked: p.held.question(), led: p.led,
	}
	if p.dryRun {
		now.placed, now.hash, now.chosenBy = was.placed, was.hash, was.chosenBy
	}
	for _, refs := range [][]refractv1alpha1.PolicyReference{p.overrides, p.deleted} {
		for _, r := range refs {
			now.rendered = append(now.rendered, tree.Policy{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
		}
	}
	return now
}

// uses reports whether the desired state was made with the policy at this generation.
func (p *desiredState) uses(ref tree.Policy, generation int64) bool {
	ref.Generation = generation
	is := *policyReference(ref)
	return (p.propagation != nil && *p.propagation == is) || slices.Contains(p.overrides, is)
}

func policyReference(p tree.Policy) *refractv1alpha1.PolicyReference {
	return &refractv1alpha1.PolicyReference{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name, Generation: p.Generation}
}

func prefixed(policy tree.Policy, warnings []string) []string {
	out := make([]string, len(warnings))
	for i, w := range warnings {
		out[i] = policy.String() + ": " + w
	}
	return out
}
