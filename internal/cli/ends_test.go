package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// soon is the longest time in which a command may end after an interrupt: [grace], plus a reserve for a busy machine. A
// command that ignores the interrupt would run much longer.
const soon = grace + 2*time.Second

// ending describes how the test interrupts a command.
type ending struct {
	// reads has arguments with which the command reads stdin. stdin returns an input that takes long to process.
	reads string
	stdin func() string
	// busy has arguments with which the command takes long without stdin.
	busy string
	// timeout has arguments with a short --timeout.
	timeout string
	// The field not has the reason why the command is not interrupted; empty for all other commands.
	not string
}

// endings has all commands. The test also interrupts the commands in [clusterCommands] while the hub does not answer.
var endings = map[string]ending{
	"refract render":        {reads: "-f - -o variants", stdin: hostileFleet},
	"refract explain":       {reads: "deployment/web-7 -f -", stdin: hostileFleet},
	"refract explain pod":   {},
	"refract diff":          {reads: "-f fleet.yaml --to -", stdin: hostileFleet},
	"refract snapshot":      {},
	"refract inject":        {reads: "-f -", stdin: hostileFleet},
	"refract lint":          {reads: "-f crd.yaml -f -", stdin: hostileFleet},
	"refract test":          {busy: "tests.yaml"},
	"refract install":       {},
	"refract uninstall":     {},
	"refract check":         {},
	"refract run":           {not: "it ends in order: it hands its Leases over"},
	"refract demo":          {not: "it ends in order: it ends its clusters"},
	"refract up":            {not: "it ends in order: it ends its clusters"},
	"refract down":          {not: "it ends in order: it waits for the clusters that it ends"},
	"refract join":          {},
	"refract unjoin":        {},
	"refract ui":            {not: "it ends in order: it removes its folder"},
	"refract get":           {},
	"refract wait":          {timeout: "deployment/web --timeout 300ms"},
	"refract approve":       {},
	"refract rollout":       {not: "it prints its help"},
	"refract rollout pause": {}, "refract rollout resume": {}, "refract rollout approve": {},
	"refract rollout status": {timeout: "web --wait --timeout 300ms"},
	"refract crd":            {not: "it prints its help"},
	"refract crd check":      {reads: "-f - --old crd.yaml", stdin: hostileCRD},
	"refract crd prune":      {reads: "--crd crd.yaml -f -", stdin: hostileObjects},
	"refract crd default":    {reads: "--crd crd.yaml -f -", stdin: hostileObjects},
	"refract crd validate":   {reads: "--crd crd.yaml -f -", stdin: hostileObjects},
	"refract crd simulate":   {reads: "--crd crd.yaml -f -", stdin: hostileObject},
	"refract crd convert":    {reads: "--crd crd.yaml --policy policy.yaml --to v2 -f -", stdin: hostileObjects},
	"refract crd verify": {
		reads: "--crd crd.yaml --policy policy.yaml --objects - --timeout 10m", stdin: hostileObjects,
		timeout: "--crd crd.yaml --policy policy.yaml --count 20 --timeout 2s",
	},
	"refract crd suggest": {reads: "--crd -", stdin: hostileCRD},
	"refract crd migrate": {},
	"refract version":     {not: "it prints what it knows"},
	"refract docs":        {not: "it writes the reference, and ends in order"},
}

// commandsOf returns the runnable commands, except cobra's completion commands.
func commandsOf(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	if cmd.HasParent() && cmd.Runnable() {
		all = append(all, cmd)
	}
	for _, c := range cmd.Commands() {
		if c.Name() != "completion" {
			all = append(all, commandsOf(c)...)
		}
	}
	return all
}

// TestEveryCommandEnds: every command ends soon after an interrupt and after its --timeout, whether it waits or
// computes.
func TestEveryCommandEnds(t *testing.T) {
	commands := map[string]*cobra.Command{}
	for _, cmd := range commandsOf(newRootCommand(newStreams(nil, io.Discard, io.Discard))) {
		commands[cmd.CommandPath()] = cmd
	}
	dir := hostileFolder(t)
	t.Chdir(dir)
	for _, path := range slices.Sorted(maps.Keys(commands)) {
		tc, ok := endings[path]
		hub := clusterCommands[path]
		_, ofCluster := clusterCommands[path]
		switch {
		case !ok:
			t.Errorf("%s: it is not known how it ends: add it to endings", path)
		case tc.not != "" && tc.reads+tc.busy+tc.timeout != "", tc.not == "" && tc.reads+tc.busy+tc.timeout == "" && !ofCluster:
			t.Errorf("%s: want either how it is told to end or why not", path)
		case commands[path].Flags().Lookup("filename") != nil && tc.not == "" && tc.reads == "":
			t.Errorf("%s reads files, and is not tried with them", path)
		}
		if tc.reads != "" {
			t.Run(path+"/Input", func(t *testing.T) { endsWaitingForInput(t, path, tc.reads) })
			t.Run(path+"/Busy", func(t *testing.T) { endsWhileBusy(t, path, tc.reads, tc.stdin()) })
		}
		if tc.busy != "" {
			t.Run(path+"/Busy", func(t *testing.T) { endsWhileBusy(t, path, tc.busy, "") })
		}
		if ofCluster && tc.not == "" {
			t.Run(path+"/Hub", func(t *testing.T) { endsWaitingForHub(t, path, hub.args) })
		}
		if tc.timeout != "" {
			t.Run(path+"/Timeout", func(t *testing.T) { endsInTime(t, path, tc.timeout) })
		}
	}
	for path := range endings {
		if commands[path] == nil {
			t.Errorf("there is no %s", path)
		}
	}
}

// said is the output of a command so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// started is a running command.
type started struct {
	said said
	code chan int
}

func start(ctx context.Context, command string, args []string, stdin io.Reader) *started {
	run := &started{code: make(chan int, 1)}
	go func() {
		run.code <- Main(ctx, slices.Concat(strings.Fields(command), args), stdin, &run.said, &run.said)
	}()
	return run
}

// wantSoon fails the test unless the command ends in time.
func (run *started) wantSoon(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case code := <-run.code:
		return code
	case <-time.After(within):
		t.Fatalf("it goes on %s after it was told to end; it said:\n%.2000s", within, &run.said)
		return 0
	}
}

// hooked is an input that calls read at its end, and then waits until end is closed.
type hooked struct {
	io.Reader

	read func()
	end  <-chan struct{}
}

func (h *hooked) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		h.read()
		<-h.end
	}
	return n, err
}

var ended = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func endsWaitingForInput(t *testing.T, path, args string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := start(ctx, path, strings.Fields(args), &hooked{Reader: strings.NewReader("# There is more to come.\n"), read: cancel, end: t.Context().Done()})
	if code := run.wantSoon(t, time.Minute); code != exitError || !strings.Contains(run.said.String(), "interrupted") {
		t.Errorf("it ended with %d, want %d and that it was interrupted:\n%.2000s", code, exitError, &run.said)
	}
}

func endsWhileBusy(t *testing.T, path, args, stdin string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if stdin == "" {
		cancel() // The command starts with a context that has already ended.
	}
	run := start(ctx, path, strings.Fields(args), &hooked{Reader: strings.NewReader(stdin), read: cancel, end: ended})
	select {
	case <-ctx.Done():
		run.wantSoon(t, soon)
	case code := <-run.code:
		t.Errorf("it ended with %d before it had read all:\n%.2000s", code, &run.said)
	}
}

// silentHub starts a hub that does not respond, but calls asked for each request. It returns the name of a kubeconfig.
func silentHub(t *testing.T, asked func()) string {
	t.Helper()
	end := make(chan struct{})
	h := &fakeHub{Server: httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked()
		select {
		case <-r.Context().Done():
		case <-end:
		}
	}))}
	t.Cleanup(func() {
		close(end)
		h.Close()
	})
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(name, []byte(h.kubeconfig()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func endsWaitingForHub(t *testing.T, path string, args []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kubeconfig := silentHub(t, cancel)
	run := start(ctx, path, append(slices.Clone(args), "--kubeconfig", kubeconfig), strings.NewReader(""))
	if code := run.wantSoon(t, time.Minute); code != exitError {
		t.Errorf("it ended with %d, want %d:\n%.2000s", code, exitError, &run.said)
	}
}

func endsInTime(t *testing.T, path, args string) {
	t.Helper()
	all := strings.Fields(args)
	if _, ofCluster := clusterCommands[path]; ofCluster {
		all = append(all, "--kubeconfig", silentHub(t, func() {}))
	}
	timeout, err := time.ParseDuration(all[slices.Index(all, "--timeout")+1])
	if err != nil {
		t.Fatal(err)
	}
	start(t.Context(), path, all, strings.NewReader("")).wantSoon(t, timeout+soon)
}

// TestWhole: an operation that must not be interrupted is completed. No such operation starts after the interrupt.
func TestWhole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	s := newStreams(nil, &out, io.Discard)
	left := make(chan struct{})
	later := make(chan error, 1)
	finished := false
	err := s.within(ctx, grace, func() error {
		defer func() { later <- s.whole(func() error { return errors.New("it was begun") }) }()
		whole := s.narrating(io.Discard).whole(func() error { // Commands use this for an operation on one of many members.
			cancel()
			<-time.After(2 * grace) // Other operations are abandoned after grace.
			finished = true
			return nil
		})
		<-left
		_, err := fmt.Fprint(s.out, "said after it was left")
		return errors.Join(whole, err)
	})
	if !finished || !errors.Is(err, context.Canceled) {
		t.Errorf("within(): it was finished: %t; error %v", finished, err)
	}
	close(left)
	if err := <-later; !errors.Is(err, context.Canceled) {
		t.Errorf("whole() after it was left: error %v", err)
	}
	if out.Len() > 0 {
		t.Errorf("It said %q after it was left", &out)
	}
}

// hostileFolder returns a folder with expensive input for the commands.
func hostileFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"crd.yaml": hostileCRD(), "policy.yaml": hostilePolicy(), "fleet.yaml": hostileFleet(), "tests.yaml": hostileTests(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(hostileCRD()); n < 400_000 {
		t.Fatalf("the definition has %d bytes", n)
	}
	return dir
}

const (
	hostileGroups = 60
	hostileFields = 60
)

// hostileCRD returns a CustomResourceDefinition of more than 400 KB. Its objects are wide and deep, all fields have
// conditions and rules, and small objects are invalid.
func hostileCRD() string {
	var b strings.Builder
	b.WriteString(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hoards.example.com}
spec:
  group: example.com
  names: {kind: Hoard, listKind: HoardList, plural: hoards, singular: hoard}
  scope: Namespaced
  versions:
`)
	for i, version := range []string{"v1", "v2"} {
		fmt.Fprintf(&b, "  - name: %s\n    served: true\n    storage: %t\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          spec:\n            type: object\n", version, i == 0)
		groups, fields := hostileNames("group", hostileGroups), hostileNames("field", hostileFields)
		fmt.Fprintf(&b, "            required: [%s]\n", groups)
		b.WriteString("            oneOf: [{required: [list]}, {not: {required: [list]}}]\n            anyOf:\n")
		for g := range hostileGroups {
			fmt.Fprintf(&b, "            - {required: [group%d]}\n", g)
		}
		b.WriteString("            - {}\n            properties:\n")
		for g := range hostileGroups {
			fmt.Fprintf(&b, "              group%d:\n                type: object\n                required: [%s]\n                properties:\n", g, fields)
			for f := range hostileFields {
				fmt.Fprintf(&b, "                  field%d: {type: string, minLength: 12, maxLength: 40}\n", f)
			}
		}
		b.WriteString("              list: {type: array, maxItems: 100, items: {type: string, maxLength: 5}, x-kubernetes-validations: [{rule: 'self.all(x, self.all(y, x != y || y == x))'}]}\n")
		deep := "{type: string}"
		for range 60 {
			deep = "{type: object, properties: {deeper: " + deep + "}}"
		}
		fmt.Fprintf(&b, "              deep: %s\n", deep)
	}
	return b.String()
}

func hostileNames(prefix string, n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return strings.Join(names, ", ")
}

// hostilePolicy returns a ConversionPolicy with which no object survives a round trip.
func hostilePolicy() string {
	var b strings.Builder
	b.WriteString("apiVersion: refract.dev/v1alpha1\nkind: ConversionPolicy\nmetadata: {name: hoards}\nspec:\n  crd: hoards.example.com\n  hub: v2\n  spokes:\n  - version: v1\n    fields:\n")
	for g := range hostileGroups {
		fmt.Fprintf(&b, "    - {hub: spec.group%[1]d.field1, spoke: spec.group%[1]d.field1, toHub: \"value + 'x'\", toSpoke: value}\n", g)
	}
	return b.String()
}

// hostileObject returns an object that has every field of hostileCRD.
func hostileObject() string {
	var b strings.Builder
	b.WriteString("apiVersion: example.com/v1\nkind: Hoard\nmetadata: {name: all}\nspec:\n")
	for g := range hostileGroups {
		fmt.Fprintf(&b, "  group%d:\n", g)
		for f := range hostileFields {
			fmt.Fprintf(&b, "    field%d: text %d of %d\n", f, f, g)
		}
	}
	b.WriteString("  list: [" + strings.Repeat("x, ", 99) + "x]\n")
	return b.String()
}

func hostileObjects() string {
	return strings.Repeat(hostileObject()+"---\n", 8)
}

// hostileFleet returns many objects, policies and clusters.
func hostileFleet() string {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "apiVersion: core.kubeadmiral.io/v1alpha1\nkind: FederatedCluster\nmetadata: {name: c%d, labels: {n: '%d'}}\nspec: {apiEndpoint: 'https://c%d'}\n---\n", i, i, i)
	}
	b.WriteString("apiVersion: core.kubeadmiral.io/v1alpha1\nkind: OverridePolicy\nmetadata: {name: all, namespace: default}\nspec:\n  overrideRules:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  - targetClusters: {clusterSelector: {n: '%d'}}\n    overriders: {jsonpatch: [{operator: add, path: /metadata/annotations/a%d, value: b}]}\n", i, i)
	}
	b.WriteString("---\napiVersion: core.kubeadmiral.io/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: all, namespace: default}\nspec: {schedulingMode: Duplicate}\n---\n")
	for i := range 60 {
		fmt.Fprintf(&b, `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-%d
  namespace: default
  annotations: {a: b}
  labels: {kubeadmiral.io/propagation-policy-name: all, kubeadmiral.io/override-policy-name: all}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
---
`, i)
	}
	return b.String()
}

// hostileTests returns test cases with expensive comparisons.
func hostileTests() string {
	var b strings.Builder
	b.WriteString("apiVersion: refract.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: all}\nspec:\n  inputs: [fleet.yaml]\n  cases:\n")
	for i := range 200 {
		fmt.Fprintf(&b, "  - {name: case-%d, object: deployment/default/web-%d, cluster: c%d, expect: {cel: [\"object.metadata.labels.all(a, object.metadata.labels.all(b, a == a || b == b))\"]}}\n", i, i%60, i)
	}
	return b.String()
}
