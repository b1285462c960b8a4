package playground

import (
	"slices"
	"testing"
)

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts(t.Context(), 50)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(slices.Clone(ports))) != 50 || ports[0] < firstPort || ports[49] > lastPort {
		t.Errorf("FreePorts(): want 50 different ports from %d to %d, got %v", firstPort, lastPort, ports)
	}
}
