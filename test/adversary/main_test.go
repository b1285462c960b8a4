// Package adversary tests that who means ill hurts nobody else.
package adversary

import (
	"testing"

	"refract.dev/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }
