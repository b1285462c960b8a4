package simulate

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// needRefract are operations that are rarely or never possible without running controllers.
var needRefract = []string{ //nolint:gochecknoglobals // It is a constant.
	"approve placement", "approve rollout", "resume rollout", "pause rollout", "approve again", "approve deletions", "rename", "finish rename",
	"finish unjoin", "fight over copy", "take copy", "edit copy", "delete copy", "hold copy", "delete copies' namespace", "delete report", "delete revision", "kill", "stop", "restart", "cut", "heal",
	"lose waiting copies",
}

// TestOperations: without Refract, each operation except those above becomes possible at some time, and the models of
// controllers come to rest.
func TestOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, all := map[string]int{}, slices.Concat(operations(), floorScenes, lossScenes)
		for seed := range uint64(10) {
			w := newWorld(seed, nil)
			w.calm = false
			for step := range uint64(250) {
				w.Rand = rand.New(rand.NewPCG(seed, step))
				o := pick(w, all) // With equal probabilities, rare operations occur, too.
				if actor, text := o.do(w); text != "" {
					w.stats.operations[o.name]++
					w.Journal.add(w, actor, text)
				}
				time.Sleep(time.Second)
			}
			for _, target := range w.everyTarget() {
				target.Down = false
			}
			w.mend()
			w.controllersRun()
			for name, n := range w.stats.operations {
				counts[name] += n
			}
			w.end()
		}
		for _, o := range all {
			if counts[o.name] == 0 && !slices.Contains(needRefract, o.name) {
				t.Errorf("operation %q was never done", o.name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%-20s %d", name, counts[name])
		}
	})
}

// TestFocuses: seeds keep their focuses, and a focus names operations that exist.
func TestFocuses(t *testing.T) {
	for seed, want := range map[uint64]int{
		1: 0, 1000: 0, 1001: 2, 1004: 5, 2000: 1, 2001: 4, 2003: 6, 10000: 5, 10001: 2, 10004: 5, 10006: 7, 10007: 8, 10008: 1,
	} {
		if got := NewPlan(seed, 1).Focus; got != want {
			t.Errorf("seed %d: want focus %d, got %d", seed, want, got)
		}
	}
	for i, f := range focuses {
		for _, name := range f.often {
			if !slices.ContainsFunc(operations(), func(o operation) bool { return o.name == name }) {
				t.Errorf("focus %d: there is no operation %q", i+1, name)
			}
		}
	}
}

// TestRebuiltClusterIsWell: a rebuilt cluster has the accounts that each cluster has, and accepts their writes.
func TestRebuiltClusterIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(7, nil)
		at := slices.IndexFunc(maladies, func(m malady) bool { return m.name == "validation" })
		for _, c := range w.Clusters {
			c.Lab.Ailments = []ailment{{kindAccount, &maladies[at]}}
		}
		_, text := w.rebuildCluster()
		if well := slices.ContainsFunc(w.Clusters, func(c *Cluster) bool { return c.Lab.Ailments == nil }); !well || text == "" {
			t.Errorf("want a cluster that refuses nothing, got %q", text)
		}
		w.end()
	})
}

// TestOperationsAreRepeated: the same seed gives the same history.
func TestOperationsAreRepeated(t *testing.T) {
	once := func() (hash string) {
		synctest.Test(t, func(*testing.T) {
			w := newWorld(7, nil)
			w.calm = false
			for step := range uint64(200) {
				w.Rand = rand.New(rand.NewPCG(7, step))
				w.operate()
				time.Sleep(time.Second)
			}
			hash = w.Journal.Hash()
			w.end()
		})
		return hash
	}
	if one, other := once(), once(); one != other {
		t.Errorf("the same seed gave two histories: %s and %s", one, other)
	}
}
