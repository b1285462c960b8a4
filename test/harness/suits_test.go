package harness

import "testing"

func TestSuits(t *testing.T) {
	cases := map[string]struct {
		reason  string
		of      Topology
		running Topology
		want    bool
	}{
		"Fewer": {"A playground may have more members than the topology.", Topology{Members: 2}, Topology{Members: 3}, true},
		"Hub":   {"A playground with members stays free for topologies with members.", Topology{}, Topology{Members: 3}, false},
		"Nodes": {"Members without Nodes run nothing.", Topology{Members: 3, Nodes: true}, Topology{Members: 3}, false},
		"Alike": {
			"A topology of identical clusters needs identical clusters.",
			Topology{Members: 3, Alike: true}, Topology{Members: 3}, false,
		},
		"Differing": {
			"Identical clusters would hide differences between clusters.",
			Topology{Members: 3}, Topology{Members: 3, Alike: true}, false,
		},
		"OrdinaryHub":  {"A hub without controllers assigns fewer fields.", Topology{OrdinaryHub: true}, Topology{}, false},
		"HubThatWorks": {"A hub with all controllers acts on the objects of tests.", Topology{}, Topology{OrdinaryHub: true}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := suits(tc.of, tc.running); got != tc.want {
				t.Errorf("%s\nsuits(): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
