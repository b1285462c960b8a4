// Package adversary tests that a user of the hub, who has rights in a namespace or to a
// few objects, can hurt nobody else.
package adversary

import (
	"testing"

	"refract.dev/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }
