package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// examples are the arguments for the fleet that the demo shows.
var examples = []string{
	"-f", "examples/override/clusters.yaml", "-f", "examples/override/shop", "-f", "examples/release/front.yaml", "-f", "examples/injection/shop",
}

// all are the pages, each with what its heading says.
var all = map[string]string{
	"/": "Fleet",
	"/?each=1&q=my-nginx&l=region%3Deu&state=right":                  "Fleet",
	"/object/Deployment.apps/shop/checkout?c=member-2&with=member-1": "Deployment shop/checkout",
	"/policies": "Policies",
	"/policy/OverridePolicy/shop/checkout-release": "OverridePolicy shop/checkout-release",
	"/rollouts":                   "Rollouts",
	"/clusters":                   "Clusters",
	"/services":                   "Services into pods",
	"/definitions":                "Custom resources",
	"/object/Deployment.apps/a/b": "That is not here",
}

// TestPages: every page, in light and dark: it is there, without an error and a request to elsewhere.
func TestPages(t *testing.T) {
	p := visit(t, 1300, 900, examples...)
	shots := os.Getenv("REFRACT_SCREENSHOTS")
	for address, heading := range all {
		for _, dark := range []bool{false, true} {
			p.dark(dark)
			p.open(address)
			if got := p.text("main h1"); got != heading {
				t.Errorf("%s: got heading %q, want %q", address, got, heading)
			}
			if shots != "" {
				name := strings.NewReplacer("/", "_", "?", "_", "&", "_", "=", "_", "%", "").Replace(address)
				if dark {
					name += "-dark"
				}
				p.picture(filepath.Join(shots, name+".png"))
			}
		}
	}
}
