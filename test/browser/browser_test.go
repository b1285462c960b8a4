// Package browser tests the pages of refract ui in a real browser: Chromium.
package browser

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is the time limit of every step.
const patience = 60 * time.Second

// chromium returns the browser.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no chromium: make test-browser installs it, or prints instructions")
	return ""
}

// root is the folder of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// page is a tab of the browser, with its recorded problems.
type page struct {
	*testing.T

	ctx  context.Context //nolint:containedctx // It is the tab.
	base string          // The required beginning of all request URLs; empty for a file.

	mu       sync.Mutex
	problems []string
}

// newPage opens a tab for the pages of a server, or for files if base is empty.
func newPage(t *testing.T, base string, width, height int) *page {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.WindowSize(width, height), chromedp.UserDataDir(t.TempDir()), chromedp.Flag("hide-scrollbars", true),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		closeTab()
		end()
	})
	p := &page{T: t, ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// listen records errors, and requests to other servers.
func (p *page) listen(event any) {
	problem := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		url := e.Request.URL
		own := strings.HasPrefix(url, "data:") || strings.HasPrefix(url, "file:") || p.base != "" && strings.HasPrefix(url, p.base+"/")
		if !own && url != "about:blank" {
			problem = "a request to elsewhere: " + url
		}
	case *runtime.EventExceptionThrown:
		problem = "an exception: " + e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "assert" {
			problem = fmt.Sprintf("on the console: %v", e.Args)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" && !strings.Contains(e.Entry.Text, "404") {
			problem = fmt.Sprintf("in the log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	}
	if problem != "" {
		p.mu.Lock()
		p.problems = append(p.problems, problem)
		p.mu.Unlock()
	}
}

// run runs an action in a page, and returns its result.
func run[R any](p *page, action chromedp.Action[R]) R {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.Fatal(err)
	}
	return value
}

// open opens an address of the server.
func (p *page) open(address string) {
	p.Helper()
	run(p, chromedp.Navigate(p.base+address))
	run(p, chromedp.WaitReady("main h1"))
}

// text returns the text of an element.
func (p *page) text(selector string) string {
	p.Helper()
	return run(p, chromedp.Text(selector))
}

// evaluate returns the result of a script, which may be a promise.
func evaluate[R any](p *page, script string) R {
	p.Helper()
	return run(p, chromedp.Evaluate[R](script, chromedp.EvalAwaitPromise))
}

// until waits until the result of a script is true.
func (p *page) until(script string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script))
		switch {
		case err == nil && is:
			return
		case ctx.Err() != nil:
			p.Fatalf("not within %s: %s: %v", patience, script, err) // The last error may come from the previous page.
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // The page sends no event for this.
	}
}

// dark sets the preference of the browser for dark pages.
func (p *page) dark(is bool) {
	p.Helper()
	scheme := "light"
	if is {
		scheme = "dark"
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.Fatal(err)
	}
}

// clean fails the test if the page has a recorded problem.
func (p *page) clean() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.Error(problem)
	}
	p.problems = nil
}

// picture writes a screenshot of the tab to a file.
func (p *page) picture(name string) {
	p.Helper()
	if err := os.WriteFile(name, run(p, chromedp.CaptureScreenshot()), 0o644); err != nil {
		p.Fatal(err)
	}
}

// serve runs refract ui until the test ends. It returns the URL with the token, and the URL of the server.
func serve(t *testing.T, args ...string) (entrance, base string) {
	t.Helper()
	binary := os.Getenv("REFRACT_TEST_BINARY")
	if binary == "" {
		binary = filepath.Join(root(t), "bin", "refract")
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"ui", "--no-open"}, args...)...)
	cmd.Dir = root(t)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err == nil {
			_ = cmd.Wait() // The interrupt ends it.
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("refract ui %s: %v\n%s", strings.Join(args, " "), err, &said)
	}
	entrance = strings.TrimSpace(line)
	base, _, _ = strings.Cut(entrance, "/?")
	return entrance, base
}

// visit opens the pages of a server in a new tab.
func visit(t *testing.T, width, height int, args ...string) *page {
	t.Helper()
	entrance, base := serve(t, args...)
	p := newPage(t, base, width, height)
	run(p, chromedp.Navigate(entrance))
	run(p, chromedp.WaitReady("main h1"))
	return p
}
