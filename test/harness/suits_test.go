package harness

import (
	"testing"

	"refract.dev/internal/playground"
)

func TestSuits(t *testing.T) {
	three := make([]playground.Cluster, 3)
	cases := map[string]struct {
		reason  string
		of      Topology
		running playground.State
		want    bool
	}{
		"Fewer": {"A playground may have more members than the topology.", Topology{Members: 2}, playground.State{Bare: true, Members: three}, true},
		"Hub":   {"A playground with members stays free for topologies with members.", Topology{}, playground.State{Bare: true, Members: three}, false},
		"Nodes": {"Members without Nodes run nothing.", Topology{Members: 3, Nodes: true}, playground.State{Bare: true, Members: three}, false},
		"Alike": {
			"A topology of identical clusters needs identical clusters.",
			Topology{Members: 3, Alike: true}, playground.State{Bare: true, Members: three}, false,
		},
		"Differing": {
			"Identical clusters would hide differences between clusters.",
			Topology{Members: 3}, playground.State{Bare: true, Alike: true, Members: three}, false,
		},
		"OrdinaryHub":  {"A hub without controllers assigns fewer fields.", Topology{OrdinaryHub: true}, playground.State{Bare: true}, false},
		"HubThatWorks": {"A hub with all controllers acts on the objects of tests.", Topology{}, playground.State{Bare: true, OrdinaryHub: true}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := suits(tc.of, &tc.running); got != tc.want {
				t.Errorf("%s\nsuits(): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
