package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// agoPattern matches AGO(DURATION) in a script. It stands for a time that is DURATION ago.
var agoPattern = regexp.MustCompile(`AGO\((\w+)\)`)

// documentsOf reads a file of YAML documents.
func documentsOf(ts *testscript.TestScript, file string) []map[string]any {
	text := agoPattern.ReplaceAllStringFunc(ts.ReadFile(file), func(ago string) string {
		d, err := time.ParseDuration(agoPattern.FindStringSubmatch(ago)[1])
		ts.Check(err)
		return strconv.Quote(time.Now().Add(-d).UTC().Format(time.RFC3339))
	})
	var documents []map[string]any
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		var document map[string]any
		ts.Check(yaml.Unmarshal([]byte(part), &document))
		if document != nil {
			documents = append(documents, document)
		}
	}
	return documents
}

// hubOfScript is the key of the fake hub of a script.
type hubOfScript struct{}

// startHub is the script command hub.
func startHub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hub FILE")
	}
	var objects []*unstructured.Unstructured
	for _, d := range documentsOf(ts, args[0]) {
		objects = append(objects, &unstructured.Unstructured{Object: d})
	}
	h := newFakeHub(objects)
	ts.Defer(func() {
		h.CloseClientConnections()
		h.Close()
	})
	*ts.Value(hubOfScript{}).(**fakeHub) = h
	ts.Check(os.WriteFile(ts.MkAbs("hub.kubeconfig"), []byte(h.kubeconfig()), 0o600))
}

// scene is a change of the hub that happens during a command: after the command has printed the text in when, or before
// the request in before is answered.
type scene struct {
	when   string
	before string
	acts   []map[string]any
}

// play is the script command play.
func play(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: play CODE FILE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	h := *ts.Value(hubOfScript{}).(**fakeHub)
	var scenes []scene
	for _, d := range documentsOf(ts, args[1]) {
		when, _ := d["when"].(string)
		before, _ := d["before"].(string)
		if when+before != "" {
			scenes = append(scenes, scene{when: when, before: before})
			continue
		}
		scenes[len(scenes)-1].acts = append(scenes[len(scenes)-1].acts, d)
	}
	said := newSaid()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // Without a limit, a missing text or request would block the test.
	defer cancel()
	code := make(chan int, 1)
	go func() {
		defer said.end()
		code <- Main(ctx, args[2:], strings.NewReader(""), said.also(ts.Stdout()), said.also(ts.Stderr()))
	}()
	for i := range scenes {
		if err := scenes[i].run(h, said, cancel); err != nil {
			ts.Fatalf("%v", err)
		}
	}
	if got := <-code; got != want {
		ts.Fatalf("exit code %d, want %d; it said:\n%s", got, want, said)
	}
}

func (s *scene) run(h *fakeHub, said *saidText, interrupt func()) error {
	if s.before == "" {
		if !said.wait(s.when) {
			return fmt.Errorf("the command ended without having said %q, but:\n%s", s.when, said)
		}
		s.act(h, interrupt)
		return nil
	}
	happened := make(chan struct{})
	var once sync.Once
	h.mu.Lock()
	h.before = func(method, resource string) {
		if method+" "+resource == s.before {
			once.Do(func() {
				s.act(h, interrupt)
				close(happened)
			})
		}
	}
	h.mu.Unlock()
	select {
	case <-happened:
		return nil
	case <-said.ended:
		return errors.New("the command ended without " + s.before)
	}
}

func (s *scene) act(h *fakeHub, interrupt func()) {
	for _, act := range s.acts {
		if act["interrupt"] != nil {
			interrupt()
			continue
		}
		if gone, ok := act["gone"].(map[string]any); ok {
			h.remove(&unstructured.Unstructured{Object: gone})
			continue
		}
		h.put(&unstructured.Unstructured{Object: act})
	}
}

// saidText is the output of a command so far.
type saidText struct {
	mu      sync.Mutex
	changed *sync.Cond
	text    bytes.Buffer
	over    bool
	ended   chan struct{}
}

func newSaid() *saidText {
	h := &saidText{ended: make(chan struct{})}
	h.changed = sync.NewCond(&h.mu)
	return h
}

// wait waits until the text was printed, and then returns true. It returns false if the command ends without printing
// the text.
func (h *saidText) wait(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !strings.Contains(h.text.String(), text) {
		if h.over {
			return false
		}
		h.changed.Wait()
	}
	return true
}

func (h *saidText) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	close(h.ended)
	h.changed.Broadcast()
}

func (h *saidText) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// also returns a writer that writes to w and records the text.
func (h *saidText) also(w io.Writer) io.Writer { return listener{h, w} }

type listener struct {
	said *saidText
	w    io.Writer
}

func (l listener) Write(p []byte) (int, error) {
	l.said.mu.Lock()
	defer l.said.mu.Unlock()
	l.said.text.Write(p)
	l.said.changed.Broadcast()
	return l.w.Write(p)
}
