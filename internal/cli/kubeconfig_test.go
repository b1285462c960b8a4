package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
)

// askedRequests records the requests that a server has received.
type askedRequests struct {
	mu    sync.Mutex
	as    []string // The impersonated user and groups.
	paths []string
}

func (a *askedRequests) note(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.as = append(a.as, r.Header.Get("Impersonate-User")+"/"+strings.Join(r.Header.Values("Impersonate-Group"), ","))
	a.paths = append(a.paths, r.URL.Path)
}

// recordedHub returns a hub that records its requests. It calls asked for each request.
func recordedHub(t *testing.T, asked func()) (*fakeHub, *askedRequests) {
	t.Helper()
	h := newFakeHub(nil)
	t.Cleanup(h.Close)
	requests := &askedRequests{}
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.note(r)
		asked()
		h.ServeHTTP(w, r)
	})
	return h, requests
}

// clusterCommands are the commands that send requests to a cluster, with arguments that lead to a request.
var clusterCommands = map[string]struct {
	args       []string
	namespaced bool // Whether the command requests objects of a namespace.
	ends       bool // Whether the command ends without an interrupt.
}{
	"refract approve":         {[]string{"eu-1"}, false, true},
	"refract check":           {nil, false, true},
	"refract crd migrate":     {[]string{"pizzas.example.com", "--to", "v1"}, false, true},
	"refract diff":            {[]string{"--hub", "--to", "."}, false, true},
	"refract explain":         {[]string{"deployment/web", "--hub"}, false, true},
	"refract explain pod":     {[]string{"web"}, true, true},
	"refract get":             {nil, true, true},
	"refract install":         {[]string{"--image", "registry.example.com/refract"}, false, true},
	"refract join":            {[]string{"eu-1", "--member-context", "member"}, false, true},
	"refract lint":            {[]string{"--hub"}, false, true},
	"refract render":          {[]string{"--hub"}, false, true},
	"refract rollout pause":   {[]string{"web"}, true, true},
	"refract rollout resume":  {[]string{"web"}, true, true},
	"refract rollout approve": {[]string{"web"}, true, true},
	"refract rollout status":  {[]string{"web"}, true, true},
	"refract run":             {nil, false, false},
	"refract snapshot":        {[]string{"out"}, false, true},
	"refract ui":              {[]string{"--no-open"}, false, false},
	"refract uninstall":       {nil, false, true},
	"refract unjoin":          {[]string{"eu-1"}, false, true},
	"refract wait":            {[]string{"deployment/web"}, false, true},
}

// TestClusterFlags: $KUBECONFIG has two files. Every command uses the current context or that of --context, the user
// and groups of --as and --as-group, and the namespace of -n.
func TestClusterFlags(t *testing.T) {
	root := newRootCommand(newStreams(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}))
	found := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("kubeconfig") != nil {
			found[cmd.CommandPath()] = true
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
	for command := range found {
		if _, ok := clusterCommands[command]; !ok {
			t.Errorf("%s talks to a cluster, and is not tested", command)
		}
	}
	for command, tc := range clusterCommands {
		if !found[command] {
			t.Errorf("%s has no --kubeconfig", command)
			continue
		}
		t.Run(command, func(t *testing.T) {
			testClusterFlags(t, append(strings.Fields(command), tc.args...), tc.namespaced, tc.ends)
		})
	}
}

func testClusterFlags(t *testing.T, command []string, namespaced, ends bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := func() {
		if !ends {
			cancel()
		}
	}
	current, askedOfCurrent := recordedHub(t, asked)
	other, askedOfOther := recordedHub(t, asked)
	dir := t.TempDir()
	t.Chdir(dir)
	rename := func(config, to string) string {
		return strings.NewReplacer("hub", to, "somebody", "user-of-"+to).Replace(config)
	}
	files := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for i, text := range []string{
		rename(current.kubeconfig(), "one"),
		rename(other.kubeconfig(), "two"),
	} {
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBECONFIG", strings.Join(files, string(filepath.ListSeparator)))

	var said bytes.Buffer
	run := func(flags ...string) {
		t.Helper()
		said.Reset()
		Main(ctx, slices.Concat(command, flags), strings.NewReader(""), &said, &said)
	}
	run()
	if len(askedOfCurrent.paths) == 0 || len(askedOfOther.paths) != 0 {
		t.Errorf("without flags: want the current context of the first file asked, got %d requests there and %d elsewhere\n%s",
			len(askedOfCurrent.paths), len(askedOfOther.paths), &said)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	before := len(askedOfCurrent.paths)
	flags := []string{"--context", "two", "--as", "jane", "--as-group", "dev", "--request-timeout", "5s"}
	if namespaced {
		flags = append(flags, "-n", "shop")
	}
	run(flags...)
	if len(askedOfCurrent.paths) != before || len(askedOfOther.paths) == 0 {
		t.Errorf("--context two: want the second file's cluster asked alone, got %d requests to the first's and %d to it\n%s",
			len(askedOfCurrent.paths)-before, len(askedOfOther.paths), &said)
	}
	for i, as := range askedOfOther.as {
		if as != "jane/dev" {
			t.Errorf("%s: want it asked as jane of the group dev, got %s", askedOfOther.paths[i], as)
		}
	}
	if namespaced && !slices.ContainsFunc(askedOfOther.paths, func(p string) bool { return strings.Contains(p, "/namespaces/shop/") }) {
		t.Errorf("-n shop: want it asked for something there, got %s\n%s", fmt.Sprint(askedOfOther.paths), &said)
	}
}
