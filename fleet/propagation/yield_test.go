package propagation

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestYields: while many copies wait, a report that no controller or user acts on waits, up to the maximum time.
func TestYields(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	cases := map[string]struct {
		reason  string
		waiting int
		change  func(*desiredState, *known)
		want    bool
	}{
		"Waits":   {reason: "It says that the copies are others now.", waiting: many, want: true},
		"Few":     {reason: "Few copies wait.", waiting: many - 1},
		"First":   {reason: "It is not written yet that the object was ever anywhere.", waiting: many, change: func(_ *desiredState, k *known) { k.version = "" }},
		"Another": {reason: "The record is about an object that was there before.", waiting: many, change: func(_ *desiredState, k *known) { k.source = "0" }},
		"Deleted": {reason: "Somebody deletes the record, and waits for that.", waiting: many, change: func(_ *desiredState, k *known) { k.deleting = true }},
		"Gone":    {reason: "The object is gone, and the record is to go.", waiting: many, change: func(p *desiredState, _ *known) { p.gone = true }},
		"Placed":  {reason: "Other replicas wait for where it is placed.", waiting: many, change: func(p *desiredState, _ *known) { p.placed = on("eu-1", "eu-2") }},
		"Hash":    {reason: "It is not written yet on what ground it was placed, by which it stays there.", waiting: many, change: func(p *desiredState, _ *known) { p.hash = "h" }},
		"Policy": {reason: "It is not written yet which policy made the copies; if that is deleted, it is to be known that it did.", waiting: many, change: func(p *desiredState, _ *known) {
			p.overrides = []refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "op", Generation: 1}}
		}},
		"Generation": {reason: "It is written, but for the generation.", waiting: many, want: true, change: func(p *desiredState, k *known) {
			p.overrides = []refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "op", Generation: 2}}
			k.readBack = readBack([]refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "op", Generation: 1}}, nil)
		}},
		"Travels": {reason: "It is not written yet what it travels with.", waiting: many, change: func(p *desiredState, _ *known) { p.follows = []Key{keyOf("deployments", "web")} }},
		"Rollout": {reason: "A rollout goes on when it is written how it stands.", waiting: many, change: func(p *desiredState, _ *known) { p.governed = &governance{} }},
		"Ended": {reason: "The end of a rollout, too.", waiting: many, change: func(_ *desiredState, k *known) {
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
				t.Error("The first of a second shows how far it has come.")
			}
			if tc.change != nil {
				tc.change(p, k)
			}
			if got := y.yields(key, p, k, now); got != tc.want {
				t.Errorf("%s\nyields() = %v, want %v", tc.reason, got, tc.want)
			}
			p.made = now.Add(mostYield) // It was decided again.
			if y.yields(key, p, k, now.Add(mostYield+1)) {
				t.Error("It has yielded for long.")
			}
			longest := mostYield + progress*yieldPerCluster
			for after, want := range map[time.Duration]bool{longest: false, longest + 1: true} {
				many := keyOf("configmaps", "many-"+after.String())
				y.long(many, now, progress) // It begins to yield.
				if got := y.long(many, now.Add(after), progress); got != want {
					t.Errorf("one of many clusters has yielded for %s: long() = %v, want %v", after, got, want)
				}
			}
		})
	}
}

// TestYieldsInTurns: a short phase with few waiting copies, between two checks of a report, does not delay the
// report.
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
			t.Fatalf("it did not yield %s before it had for long", left)
		}
		waiting = 0
		if y.yields(other, p, k, now.Add(yieldDelay/2)) {
			t.Fatal("another yielded, and none waits")
		}
		now = now.Add(yieldDelay)
	}
	waiting = many
	if y.yields(key, p, k, now) {
		t.Error("it has yielded for long")
	}
	waiting = 0
	y.since[key] = now
	y.yields(other, p, k, now.Add(yieldKept+1))
	if len(y.since) != 0 {
		t.Errorf("what does not come again is not forgotten: %v", y.since)
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
