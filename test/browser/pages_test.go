package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"refract.dev/test/generate"
)

// examples are the arguments for the fleet of the demo, and for a definition with a conversion.
var examples = []string{
	"-f", "examples/override/clusters.yaml", "-f", "examples/override/shop", "-f", "examples/release/front.yaml", "-f", "examples/injection/shop", "-f", "examples/conversion/move",
}

// addresses are the pages, with their headings.
var addresses = map[string]string{
	"/": "Fleet",
	"/?each=1&q=my-nginx&l=region%3Deu&state=right":                  "Fleet",
	"/object/Deployment.apps/shop/checkout?c=member-2&with=member-1": "Deployment shop/checkout",
	"/object/Secret/shop/db-credentials":                             "Secret shop/db-credentials",
	"/policies":                                                      "Policies",
	"/policy/OverridePolicy/shop/checkout-release":                   "OverridePolicy shop/checkout-release",
	"/policy/RolloutPolicy/shop/careful":                             "RolloutPolicy shop/careful",
	"/rollouts":                                                      "Rollouts",
	"/clusters":                                                      "Clusters",
	"/services":                                                      "Services into pods",
	"/services?pod=Deployment/shop/my-nginx":                         "Services into pods",
	"/definitions":                                                   "Custom resources",
	"/object/Deployment.apps/shop/there-is-none-of-it":               "Not found",
}

// accessible fails the test if axe finds an obstacle for users with disabilities.
func (p *page) accessible(where string) {
	p.Helper()
	axe, err := os.ReadFile(filepath.Join(root(p.T), "bin", "browser", "axe.min.js"))
	if err != nil {
		p.Fatalf("%v: make test-browser gets it", err)
	}
	run(p, chromedp.Evaluate[chromedp.Void](string(axe)+"\n;undefined"))
	text := evaluate[string](p, `axe.run().then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html).join(" "))))`)
	var violations []string
	if err := json.Unmarshal([]byte(text), &violations); err != nil {
		p.Fatal(err)
	}
	for _, v := range violations {
		p.Errorf("%s: %s", where, v)
	}
}

// TestPages: every page, in light and dark, has its heading, is accessible, has no errors, and sends no requests to
// other servers.
func TestPages(t *testing.T) {
	p := visit(t, 1300, 900, examples...)
	for address, heading := range addresses {
		for _, dark := range []bool{false, true} {
			p.dark(dark)
			p.open(address)
			if got := p.text("main h1"); got != heading {
				t.Errorf("%s: got heading %q, want %q", address, got, heading)
			}
			p.accessible(fmt.Sprintf("%s, dark: %t", address, dark))
		}
	}
	p.clean()
	t.Logf("%d pages, in light and dark: axe violations: 0; requests to other servers: 0; console errors: 0", len(addresses))
}

// TestKeyboard: a user can get from the fleet page to the history of a line in a copy with the keyboard alone.
func TestKeyboard(t *testing.T) {
	p := visit(t, 1300, 900, examples...)
	focused := func() string {
		return evaluate[string](p, `(() => { const e = document.activeElement; return e.getAttribute("href") || e.name || e.getAttribute("aria-label") || e.textContent; })()`)
	}
	tab := func(until string) {
		t.Helper()
		var seen []string
		for range 200 {
			run(p, chromedp.KeyEvent(kb.Tab))
			is := focused()
			if is == until {
				return
			}
			seen = append(seen, is)
		}
		t.Fatalf("the focus must come to %s, got %q", until, seen)
	}
	tab("#main") // The first link skips the navigation.
	tab("q")
	run(p, chromedp.KeyEvent("checkout"))
	p.until(`document.querySelectorAll(".fleet tbody tr").length === 1`)
	tab("Objects on clusters")
	tab("/object/Deployment.apps/shop/checkout?c=member-2")
	run(p, chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("h1")?.textContent === "Deployment shop/checkout"`)
	tab("/policy/OverridePolicy/shop/checkout-release")
	run(p, chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("h1")?.textContent === "OverridePolicy shop/checkout-release"`)
	p.clean()
}

// TestWhatIf: soon after an edit, the page shows the differences that the edit would cause, equal to the output of
// refract diff.
func TestWhatIf(t *testing.T) {
	p := visit(t, 1300, 900, examples...)
	p.open("/policy/OverridePolicy/shop/my-nginx-replicas")
	evaluate[bool](p, `(() => {
		const t = document.getElementById("policy");
		t.value = t.value.replace("value: 7", "value: 8");
		t.dispatchEvent(new Event("input", {bubbles: true}));
		return true;
	})()`)
	p.until(`document.getElementById("outcome").textContent.includes("/spec/replicas 7 → 8")`)
	shown := evaluate[string](p, `[...document.querySelectorAll("#outcome h3, #outcome code, #outcome .summary")].map(e => e.textContent).join("\n")`)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(evaluate[string](p, `document.getElementById("policy").value`)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root(t), "bin", "refract"), append(append([]string{"diff"}, examples...), "--to", policy)...)
	cmd.Dir = root(t)
	said, _ := cmd.Output() // refract diff exits with 1, because there are differences.
	for line := range strings.Lines(shown) {
		if !strings.Contains(string(said), strings.TrimSpace(line)) {
			t.Errorf("the page says %q, and refract diff\n%s", line, said)
		}
	}
	t.Logf("after the last keystroke: %s", p.text("#took"))
	p.clean()
}

// TestThousand: the pages of 1,000 objects on 1,000 clusters are fast.
func TestThousand(t *testing.T) {
	dir := t.TempDir()
	if err := generate.Large(generate.Size{Objects: 1000, Clusters: 1000, Policies: 100}).WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	p := visit(t, 1600, 1000, "-f", dir)
	for _, address := range []string{"/", "/?each=1"} {
		p.open(address)
		p.until(`performance.getEntriesByName("first-contentful-paint").length > 0`)
		paint := evaluate[float64](p, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
		evaluate[bool](p, `(() => { window.long = []; new PerformanceObserver(l => window.long.push(...l.getEntries().map(e => e.duration))).observe({type: "longtask", buffered: true}); return true; })()`)
		filter := evaluate[float64](p, `new Promise(done => {
			const began = performance.now(), q = document.querySelector("[name=q]"), result = document.getElementById("result");
			new MutationObserver((_, o) => { o.disconnect(); requestAnimationFrame(() => done(performance.now() - began)); }).observe(result, {childList: true});
			q.value = "team-03";
			q.dispatchEvent(new Event("input", {bubbles: true}));
		})`)
		evaluate[bool](p, `(async () => {
			const s = document.querySelector(".scroll");
			for (let y = 0; y <= s.scrollHeight; y += 200) { s.scrollTop = y; s.scrollLeft = y; await new Promise(requestAnimationFrame); }
			return true;
		})()`)
		longest := evaluate[float64](p, `Math.max(0, ...window.long)`)
		heap := evaluate[float64](p, `performance.memory.usedJSHeapSize / 1e6`)
		nodes := evaluate[int](p, `document.querySelectorAll("*").length`)
		t.Logf("%s: first paint %.0f ms, filter %.0f ms, longest task %.0f ms, heap %.0f MB with %d elements", address, paint, filter, longest, heap, nodes)
		for what, is := range map[string]struct{ got, goal float64 }{
			"first paint, ms": {paint, 1000}, "a filter, ms": {filter, 100}, "the longest task, ms": {longest, 200}, "memory, MB": {heap, 200},
		} {
			// On a busy machine even a fast page is slow, but not by this factor.
			const slow = 5
			if is.got >= slow*is.goal {
				t.Errorf("%s: %s: want at most %.0f, got %.0f", address, what, is.goal, is.got)
			}
		}
	}
	p.accessible("1,000 × 1,000")
	p.clean()
}

// TestFiles: a browser shows a report file from disk, without a network.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	base := []string{"-f", "examples/override/clusters.yaml", "-f", "examples/override/shop"}
	for name, args := range map[string][]string{
		"diff":    append(append([]string{"diff"}, base...), "--to", "examples/override/changes", "-o", "html"),
		"render":  append(append([]string{"render"}, base...), "-o", "html"),
		"explain": append(append([]string{"explain", "deployment/shop/checkout"}, base...), "-o", "html"),
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root(t), "bin", "refract"), args...)
		cmd.Dir = root(t)
		text, _ := cmd.Output() // refract diff exits with 1, because there are differences.
		file := filepath.Join(dir, name+".html")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		p := newPage(t, "", 1300, 900)
		for _, dark := range []bool{false, true} {
			p.dark(dark)
			run(p, chromedp.Navigate("file://"+file))
			run(p, chromedp.WaitReady("main h1"))
			if got := evaluate[string](p, `getComputedStyle(document.querySelector("h1")).fontSize`); got == "32px" {
				t.Errorf("%s: the file has no style", name)
			}
			evaluate[bool](p, `(() => { document.querySelectorAll("details").forEach(d => d.open = true); return true; })()`)
			p.accessible(name)
		}
		p.clean()
		t.Logf("%s -o html: %d KB", name, len(text)/1000)
	}
}

// TestScreenshots makes the pictures of README.md and the guide in the folder $REFRACT_SCREENSHOTS.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("REFRACT_SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir() // The test still checks that the pictures can be made.
	}
	p := visit(t, 1180, 620, examples...)
	for name, address := range map[string]string{
		"fleet": "/", "object": "/object/Deployment.apps/shop/checkout?c=member-2&with=member-1", "policy": "/policy/OverridePolicy/shop/my-nginx-replicas",
	} {
		p.open(address)
		switch name {
		case "object":
			evaluate[bool](p, `(() => { document.querySelector(".sides").scrollIntoView(); return true; })()`)
		case "policy":
			evaluate[bool](p, `(() => {
				const t = document.getElementById("policy");
				t.rows = 8;
				t.value = t.value.replace("value: 7", "value: 8");
				t.dispatchEvent(new Event("input", {bubbles: true}));
				t.scrollTop = t.scrollHeight;
				return true;
			})()`)
			p.until(`document.getElementById("outcome").textContent.includes("/spec/replicas 7 → 8")`)
			evaluate[bool](p, `(() => { document.querySelector("h2:nth-of-type(2)").scrollIntoView(); return true; })()`)
		}
		evaluate[bool](p, `new Promise(painted => requestAnimationFrame(() => requestAnimationFrame(() => painted(true))))`)
		p.picture(filepath.Join(dir, name+".png"))
	}
	p.clean()
}
