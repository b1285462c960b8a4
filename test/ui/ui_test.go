// Package ui tests the pages of refract ui, and the HTML files of other commands, without a browser, with generated and
// hostile fleets. The pages must agree with the output of the commands, stay small, and show every value as text.
package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"sigs.k8s.io/yaml"

	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/explain"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/ui"
	"refract.dev/test/generate"
	"refract.dev/tree"
)

func read(tb testing.TB, f generate.Fleet) *manifest.Set {
	tb.Helper()
	set, problems := manifest.ReadFS(f.FS())
	for _, p := range problems {
		tb.Fatal(p)
	}
	return set
}

// browser sends requests like a browser that has opened the server's address.
type browser struct {
	testing.TB

	client *http.Client
	base   string
}

// shown serves a snapshot until the test ends.
func shown(tb testing.TB, in *ui.Input) *browser {
	tb.Helper()
	server, err := ui.Listen(0, testr.NewWithInterface(tb, testr.Options{}))
	if err != nil {
		tb.Fatal(err)
	}
	in.Now = time.Unix(1_700_000_000, 0)
	is, err := ui.NewSnapshot(in)
	if err != nil {
		tb.Fatal(err)
	}
	server.Show(is)
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	b := &browser{TB: tb, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	tb.Cleanup(b.client.CloseIdleConnections)
	b.base, _, _ = strings.Cut(server.Address(), "/?")
	b.get(strings.TrimPrefix(server.Address(), b.base))
	return b
}

func (b *browser) get(address string) string {
	b.Helper()
	return b.body(b.client.Get(b.base + address))
}

func (b *browser) post(address string, values url.Values) string {
	b.Helper()
	return b.body(b.client.PostForm(b.base+address, values))
}

func (b *browser) body(r *http.Response, err error) string {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil || r.StatusCode != http.StatusOK {
		b.Fatalf("%s: status %d, %v: %s", r.Request.URL, r.StatusCode, err, text)
	}
	return string(text)
}

// TestWhatIfIsDiff: for 100 generated edits of policies, the page shows the same differences as refract diff.
func TestWhatIfIsDiff(t *testing.T) {
	edits, differ := 0, 0
	for seed := uint64(0); edits < 100; seed++ {
		before := generate.Random(seed)
		from := read(t, before)
		text := editedPolicies(t, before, generate.Mutate(before, seed))
		if text == "" {
			continue
		}
		over, problems := manifest.Read([]string{manifest.Stdin}, strings.NewReader(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		d, err := diff.Compare(from, from.Overlay(over), diff.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Unknown) > 0 {
			continue // refract diff also reports unknown objects that the edit does not affect.
		}
		edits++
		if !d.Same() {
			differ++
		}
		want := []string{d.Totals.String()}
		if d.Same() {
			want = []string{"Nothing changes."}
		}
		for _, g := range d.Said() {
			const most = 20 // Maximum number of lines of a group.
			want = append(append(want, g.Mark+" "+g.Heading), g.Lines[:min(len(g.Lines), most)]...)
		}
		page := shown(t, &ui.Input{Set: from}).post("/whatif", url.Values{"policy": {text}})
		if delta := cmp.Diff(want, said(t, page)); delta != "" {
			t.Fatalf("seed %d: -refract diff, +the page:\n%s\nfor\n%s", seed, delta, text)
		}
	}
	t.Logf("%d edits, of which %d make a difference", edits, differ)
	if differ < 40 {
		t.Errorf("Only %d edits make a difference: the test shows too little.", differ)
	}
}

// editedPolicies returns the policies that an edit has changed, as a user would type them.
func editedPolicies(t *testing.T, before, after generate.Fleet) string {
	t.Helper()
	was := map[string]bool{}
	policies := func(f generate.Fleet, each func(text string)) {
		for _, name := range f.Paths() {
			for _, d := range f[name] {
				kind, _ := d["kind"].(string)
				if !strings.HasSuffix(kind, "OverridePolicy") && !strings.HasSuffix(kind, "PropagationPolicy") {
					continue
				}
				text, err := yaml.Marshal(d)
				if err != nil {
					t.Fatal(err)
				}
				each(string(text))
			}
		}
	}
	policies(before, func(text string) { was[text] = true })
	var edited []string
	policies(after, func(text string) {
		if !was[text] {
			edited = append(edited, text)
		}
	})
	return strings.Join(edited, "---\n")
}

// said returns the differences in a page: the summary, headings and lines.
func said(t *testing.T, page string) (texts []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		summary := n.DataAtom == atom.P && slicesHas(n.Attr, "class", "summary")
		if summary || n.DataAtom == atom.H3 || n.DataAtom == atom.Code {
			texts = append(texts, textOf(n))
		}
	}
	return texts
}

func slicesHas(attributes []html.Attribute, key, value string) bool {
	for _, a := range attributes {
		if a.Key == key && a.Val == value {
			return true
		}
	}
	return false
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// thousand is the size of the fleet whose files must be small.
var thousand = generate.Size{Objects: 1000, Clusters: 100, Policies: 100}

// changedPolicy returns the fleet after a change of one policy, and that policy.
func changedPolicy(f generate.Fleet) (after generate.Fleet, policy generate.Document) {
	after = f.Clone()
	policy = after[generate.LargePolicy(0)][0]
	rules := policy["spec"].(map[string]any)["overrideRules"].([]any)
	first := rules[0].(map[string]any)["overriders"].(map[string]any)["jsonpatch"].([]any)[0].(map[string]any)
	first["value"] = int64(97)
	return after, policy
}

// TestFilesAreSmall: for 1,000 objects on 100 clusters each file is below 1 MB, has no script, and loads nothing.
func TestFilesAreSmall(t *testing.T) {
	f := generate.Large(thousand)
	after, _ := changedPolicy(f)
	from, to := read(t, f), read(t, after)
	d, err := diff.Compare(from, to, diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	everything, err := diff.Compare(&manifest.Set{Clusters: from.Clusters}, to, diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := render.Evaluate(from, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := explain.Explain(e, &e.Outcomes[0], tree.Pointer{})
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(io.Writer) error{
		"diff":           func(w io.Writer) error { return ui.WriteDiff(w, d) },
		"diff from none": func(w io.Writer) error { return ui.WriteDiff(w, everything) },
		"render":         func(w io.Writer) error { return ui.WriteRender(w, e) },
		"explain":        func(w io.Writer) error { return ui.WriteExplain(w, &e.Outcomes[0], x) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s -o html: %d KB", name, b.Len()/1000)
		if b.Len() >= 1_000_000 {
			t.Errorf("%s: want less than 1 MB, got %d bytes", name, b.Len())
		}
		harmless(t, name, b.String(), nil)
	}
}

// harmless fails the test if a page contains elements that run or load something, except the allowed ones.
func harmless(t *testing.T, name, page string, may map[string]bool) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		switch n.DataAtom { //nolint:exhaustive // All other elements are allowed.
		case atom.Script, atom.Img, atom.Link, atom.Iframe, atom.Object, atom.Embed, atom.Svg, atom.Base:
			if !may[attribute(n, "src")+attribute(n, "href")] {
				t.Errorf("%s: an element <%s> with %v", name, n.Data, n.Attr)
			}
		case atom.Meta:
			if attribute(n, "http-equiv") == "refresh" {
				t.Errorf("%s: a link leads to another server", name)
			}
		}
		for _, a := range n.Attr {
			link := a.Key == "href" || a.Key == "src" || a.Key == "action"
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || link && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("%s: <%s> with the attribute %s=%q", name, n.Data, a.Key, a.Val)
			}
		}
		if n.Type == html.TextNode && n.Parent.DataAtom == atom.Textarea {
			continue // The edited text is unchanged, and the page shows a warning.
		}
		if strings.ContainsAny(n.Data, "\u202e\u2066\u200b\x00\x07\x1b") && n.Type == html.TextNode {
			t.Errorf("%s: a text hides something: %q", name, n.Data)
		}
	}
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// BenchmarkWhatIf measures the response to one keystroke for 1,000 objects on 100 clusters.
func BenchmarkWhatIf(b *testing.B) {
	f := generate.Large(thousand)
	_, policy := changedPolicy(f)
	text, err := yaml.Marshal(policy)
	if err != nil {
		b.Fatal(err)
	}
	page := shown(b, &ui.Input{Set: read(b, f)})
	values := url.Values{"policy": {string(text)}}
	for b.Loop() {
		page.post("/whatif", values)
	}
}

// BenchmarkFleet measures the first page and a filtered page for 1,000 objects on 1,000 clusters.
func BenchmarkFleet(b *testing.B) {
	page := shown(b, &ui.Input{Set: read(b, generate.Large(generate.Size{Objects: 1000, Clusters: 1000, Policies: 100}))})
	for _, address := range []string{"/", "/?each=1", "/?q=team-03&state=right", "/?l=region%3Deu"} {
		b.Run(fmt.Sprintf("address=%s", address), func(b *testing.B) {
			for b.Loop() {
				page.get(address)
			}
		})
	}
}
