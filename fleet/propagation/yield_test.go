package propagation

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestYields: while many copies wait, reports wait as well, up to the maximum time, unless a controller or user acts on
// them.
func TestYields(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	cases := map[string]struct {
		reason  string
		waiting int
		change  func(*desiredState, *known)
		want    bool
	}{
		"Waits":   {reason: "The report only shows new copies.", waiting: many, want: true},
		"Few":     {reason: "Few copies wait.", waiting: many - 1},
		"First":   {reason: "The Propagation does not exist yet.", waiting: many, change: func(_ *desiredState, k *known) { k.version = "" }},
		"Another": {reason: "The Propagation describes a former object.", waiting: many, change: func(_ *desiredState, k *known) { k.source = "0" }},
		"Deleted": {reason: "A client deletes the Propagation, and waits for its end.", waiting: many, change: func(_ *desiredState, k *known) { k.deleting = true }},
		"Gone":    {reason: "The object is gone, and the Propagation is to be deleted.", waiting: many, change: func(p *desiredState, _ *known) { p.gone = true }},
		"Placed":  {reason: "The new placement is not recorded yet.", waiting: many, change: func(p *desiredState, _ *known) { p.placed = on("eu-1", "eu-2") }},
		"Hash":    {reason: "The hash of the placement, which keeps it stable, is not recorded yet.", waiting: many, change: func(p *desiredState, _ *known) { p.hash = "h" }},
		"Policy": {reason: "The policy of the copies is not recorded yet. After its deletion, the Propagation must name it.", waiting: many, change: func(p *desiredState, _ *known) {
			p.overrides = []refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "op", Generation: 1}}
		}},
		"Generation": {reason: "Only the generation of the policy differs.", waiting: many, want: true, change: func(p *desiredState, k *known) {
			p.overrides = []refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "op", Generation: 2}}
			k.readBack = readBack([]refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "op", Generation: 1}}, nil)
		}},
		"Travels": {reason: "The objects that it travels with are not recorded yet.", waiting: many, change: func(p *desiredState, _ *known) { p.follows = []Key{keyOf("deployments", "web")} }},
		"Rollout": {reason: "The rollout continues only after its state is recorded.", waiting: many, change: func(p *desiredState, _ *known) { p.governed = &governance{} }},
		"Ended": {reason: "The same at the end of a rollout.", waiting: many, change: func(_ *desiredState, k *known) {
			k.rollout = &refractv1alpha1.RolloutStatus{}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			y := newYielding()
			y.waiting = func() int { return tc.waiting }
			p := &desiredState{uid: "1", placed: on("eu-1"), made: now}
			k := &known{version: "7", source: "1", placed: on("eu-1"), readBack: readBack(nil, nil)}
			key := keyOf("configmaps", "web")
			large := &desiredState{uid: "1", placed: on("eu-1"), made: now, targets: map[string]*target{}}
			for i := range progress {
				large.targets[fmt.Sprint("m-", i)] = &target{}
			}
			if y.yields(keyOf("configmaps", "first"), large, k, now) {
				t.Error("the first report in a second yields, but should show the progress")
			}
			if tc.change != nil {
				tc.change(p, k)
			}
			if got := y.yields(key, p, k, now); got != tc.want {
				t.Errorf("%s\nyields() = %v, want %v", tc.reason, got, tc.want)
			}
			p.made = now.Add(mostYield) // The object was decided again.
			if y.yields(key, p, k, now.Add(mostYield+1)) {
				t.Error("a report yields for longer than the maximum time")
			}
			longest := mostYield + progress*yieldPerCluster
			for after, want := range map[time.Duration]bool{longest: false, longest + 1: true} {
				many := keyOf("configmaps", "many-"+after.String())
				y.long(many, now, progress) // The report begins to yield.
				if got := y.long(many, now.Add(after), progress); got != want {
					t.Errorf("a report of many clusters has yielded for %s: long() = %v, want %v", after, got, want)
				}
			}
		})
	}
}

// TestYieldsInTurns: a short phase with few waiting copies, between two checks of a report, does not restart the
// maximum time.
func TestYieldsInTurns(t *testing.T) {
	now, waiting := time.Unix(1_000_000, 0), many
	y := newYielding()
	y.waiting = func() int { return waiting }
	p := &desiredState{uid: "1", placed: on("eu-1")}
	k := &known{version: "7", source: "1", placed: on("eu-1"), readBack: readBack(nil, nil)}
	key, other := keyOf("configmaps", "web"), keyOf("configmaps", "other")
	y.shown = rate.NewLimiter(0, 0)
	for left := mostYield; left >= 0; left -= yieldDelay {
		waiting = many
		if !y.yields(key, p, k, now) {
			t.Fatalf("the report does not yield %s before the maximum time", left)
		}
		waiting = 0
		if y.yields(other, p, k, now.Add(yieldDelay/2)) {
			t.Fatal("a report yields while no copy waits")
		}
		now = now.Add(yieldDelay)
	}
	waiting = many
	if y.yields(key, p, k, now) {
		t.Error("the report yields after the maximum time")
	}
	waiting = 0
	y.since[key] = now
	y.yields(other, p, k, now.Add(yieldKept+1))
	if len(y.since) != 0 {
		t.Errorf("a report that does not come again is not forgotten: %v", y.since)
	}
}

// TestShows: a bounded number of reports shows the progress.
func TestShows(t *testing.T) {
	for name, tc := range map[string]struct {
		clusters int
		want     int // In ten seconds, in addition to the burst.
	}{
		"Many": {progress, 10},
		"Few":  {3, 10 * progress / leastProgress},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYielding()
			now := time.Unix(1_000_000, 0)
			y.shown.AllowN(now, progress)
			shown := 0
			for range 1000 {
				now = now.Add(10 * time.Millisecond)
				if y.shows(tc.clusters, now) {
					shown++
				}
			}
			if shown != tc.want {
				t.Errorf("shows(): want %d, got %d", tc.want, shown)
			}
		})
	}
}
