// Package kinds tests the usual operations on objects of each kind, on clusters that differ, and generates
// docs/reference/kinds.md from the results. Each archive in testdata is one row of the page.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/golden"
	"refract.dev/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

// reference is the generated page.
const reference = "../../docs/reference/kinds.md"

// hubs are the two kinds of hub, in the order of the page.
var hubs = []struct {
	name, title string
	ordinary    bool
}{
	{"Hub", "A hub that runs nothing", false},
	{"OrdinaryHub", "An ordinary cluster as the hub", true},
}

// required lists the kinds whose objects must become Ready on every cluster, with both kinds of hub. -update does not
// change this list.
var required = []string{
	"cronjob", "deployment", "deployment-with-autoscaler", "deployment-with-claim", "job", "pod", "service", "service-dual-stack",
	"service-headless", "service-loadbalancer", "service-nodeport", "statefulset",
}

// TestKinds generates the page, and compares it with the one in the repository.
func TestKinds(t *testing.T) {
	kinds, err := load("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(reference)
	if err != nil && !*golden.Update {
		t.Fatal(err)
	}
	expected := string(text)
	var page strings.Builder
	page.WriteString(introduction)
	for _, h := range hubs {
		t.Run(h.name, func(t *testing.T) {
			found := try(t, kinds, h.ordinary, section(expected, h.title))
			fmt.Fprintf(&page, "\n## %s\n\n%s", h.title, table(kinds, found))
			for _, name := range required {
				if result := found[name][create]; result != works {
					t.Errorf("%s: an object must be Ready on every cluster: got %s", name, result)
				}
			}
		})
	}
	page.WriteString(description(kinds))
	if t.Failed() {
		t.Logf("found:\n%s", page.String())
		return
	}
	if *golden.Update {
		if err := os.WriteFile(reference, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(expected, page.String()); diff != "" {
		t.Errorf("%s must match the results.\n-page, +found:\n%s\nIf the results are correct: go test ./test/kinds -update", reference, diff)
	}
}

// fleet is the fleet on which objects are tried.
type fleet struct {
	env      *harness.Env
	clients  map[string]client.WithWatch
	ordinary bool
}

// try tries all kinds on their own fleet, and returns the results by kind and operation.
func try(t *testing.T, kinds []*kind, ordinary bool, expected string) map[string]map[string]string {
	t.Helper()
	f := &fleet{
		env:      harness.New(t, harness.Topology{Members: 3, Nodes: true, CRDs: true, Own: true, OrdinaryHub: ordinary}),
		clients:  map[string]client.WithWatch{},
		ordinary: ordinary,
	}
	if err := f.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	found := map[string]map[string]string{}
	var all sync.WaitGroup
	slots := make(chan struct{}, 16) // The trials mostly wait.
	for _, k := range kinds {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results, err := f.life(t.Context(), k, cells(expected, k.name))
			if err != nil {
				t.Errorf("%s: %v", k.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[k.name] = results
		})
	}
	all.Wait()
	return found
}

// start joins the members, and runs the controllers.
func (f *fleet) start(ctx context.Context) (err error) {
	for _, cluster := range append([]string{"hub"}, f.env.Members...) {
		if f.clients[cluster], err = f.env.Client(cluster); err != nil {
			return err
		}
	}
	if err := f.env.JoinAll(ctx); err != nil {
		return err
	}
	for _, m := range f.env.Members {
		if err := f.installTypes(ctx, m); err != nil {
			return err
		}
	}
	everywhere := map[string]any{
		"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "ClusterPropagationPolicy",
		"metadata": map[string]any{"name": "kinds"}, "spec": map[string]any{"schedulingMode": "Duplicate"},
	}
	if err := harness.Apply(ctx, f.clients["hub"], everywhere); err != nil {
		return err
	}
	controllers, err := f.env.Replica("controllers", "--deletion-guard", "100")
	if err != nil {
		return err
	}
	return harness.Await(ctx, controllers.Ready)
}

// installTypes installs the types that injection needs on a member.
func (f *fleet) installTypes(ctx context.Context, member string) error {
	const name = "serviceinjectionpolicies.refract.dev"
	u, err := f.env.Get(ctx, "hub", "crd", "", name)
	if err != nil {
		return err
	}
	if u == nil {
		return errors.New("the hub has no " + name)
	}
	return client.IgnoreAlreadyExists(f.clients[member].Create(ctx, anew(u)))
}

// anew returns an object of a cluster as a user would write it, without the fields of the API server.
func anew(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := u.DeepCopy()
	out.SetResourceVersion("")
	out.SetUID("")
	out.SetManagedFields(nil)
	unstructured.RemoveNestedField(out.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(out.Object, "metadata", "generation")
	unstructured.RemoveNestedField(out.Object, "status")
	return out
}

// section returns the section of a page with this title.
func section(page, title string) string {
	_, after, _ := strings.Cut(page, "\n## "+title+"\n")
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}

// cells returns the cells of a kind in a table.
func cells(table, name string) map[string]string {
	for line := range strings.Lines(table) {
		found := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.Trim(strings.TrimSpace(found[0]), "`") != name || len(found) != len(operations)+1 {
			continue
		}
		out := map[string]string{}
		for i, op := range operations {
			out[op] = strings.TrimSpace(found[i+1])
		}
		return out
	}
	return nil
}

// introduction begins the page.
const introduction = `<!-- Generated by go test ./test/kinds -update. Do not edit. -->

# What works with which kind

A live test does the following with an object of each kind, on three members that differ from the hub and from each other (` + "`refract up`" + ` starts the
same clusters, and prints how they differ):

- **create**: the object is created on the hub. Every member gets it, and it is Ready there. What a cluster assigns, as the address of a Service, is
  the member's own.
- **change**: the user changes a field on the hub. Every member gets the new value.
- **drift**: a user changes a field on a member. Refract puts the hub's value back.
- **re-create**: the object is deleted on the hub and created again at once. Every member has it, and it is Ready.
- **delete**: the object is deleted on the hub. Every member loses it.
- **adopt**: a member has the object before the hub does. The object on the hub asks for it to be adopted.

A field that the hub does not set belongs to the member, and so does an element that a user of the member adds to a set: these are no drift.

✔ stands for success on every cluster that has the object. Otherwise the cell has the reason, and the operations after it are tried on the other
clusters, if there are any.
`

// table returns the results as a table.
func table(kinds []*kind, found map[string]map[string]string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| Kind | %s |\n|---|%s\n", strings.Join(operations, " | "), strings.Repeat("---|", len(operations)))
	for _, k := range kinds {
		fmt.Fprintf(&out, "| `%s` |", k.name)
		for _, op := range operations {
			fmt.Fprintf(&out, " %s |", found[k.name][op])
		}
		out.WriteString("\n")
	}
	return out.String()
}

// description returns a line about each row.
func description(kinds []*kind) string {
	var out strings.Builder
	out.WriteString("\n## The objects\n\nThe manifests are in [test/kinds/testdata](../../test/kinds/testdata), with the fields that are changed.\n\n" +
		"| Row | Object | Changed on the hub | Changed on a member |\n|---|---|---|---|\n")
	for _, k := range kinds {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", k.name, k.comment, pointers(k.change), pointers(k.drift))
	}
	return out.String()
}

func pointers(of []setting) string {
	var out []string
	for _, s := range of {
		out = append(out, "`"+s.pointer.String()+"`")
	}
	return strings.Join(out, ", ")
}

// load reads the archives.
func load(pattern string) ([]*kind, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(files) < 30 {
		return nil, fmt.Errorf("%s: want 30 kinds or more, got %d", pattern, len(files))
	}
	slices.Sort(files)
	var out []*kind
	for _, file := range files {
		k, err := read(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, k)
	}
	return out, nil
}

// patience is the time limit for an operation.
func patience() time.Duration {
	if *golden.Update {
		return 25 * time.Second
	}
	return 90 * time.Second
}

// settling is the time after which an operation that has failed is not expected to succeed any more.
const settling = 10 * time.Second
