package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"
)

// Journal contains the events of a run, in order.
type Journal struct {
	// Entries are the events for a story.
	Entries []Entry

	sum  hash.Hash
	last string
	to   io.Writer // Also receives all requests; nil for no output.
}

// Entry is one line of a story.
type Entry struct {
	Step  int
	After time.Duration
	// Actor is a user, a process, a controller of a cluster, or one of the actors below.
	Actor, Text string
}

// Actors that are not persons or programs.
const (
	fault    = "fault"
	passing  = "time"
	atStart  = "start"
	atEnd    = "check"
	violated = "violated"
)

func newJournal(to io.Writer) *Journal { return &Journal{sum: sha256.New(), to: to} }

// add records an event for a story.
func (j *Journal) add(w *World, actor, text string) { j.addAt(w, j.mark(w), actor, text) }

// mark is a position in a story, with its time.
type mark struct {
	entries int
	after   time.Duration
}

// mark returns the end of the story so far.
func (j *Journal) mark(w *World) mark { return mark{len(j.Entries), w.Elapsed()} }

// addAt records an event that began at a mark. In the story it comes before the events since then, which are its
// consequences.
func (j *Journal) addAt(w *World, at mark, actor, text string) {
	text = w.plain(text)
	j.Entries = slices.Insert(j.Entries, at.entries, Entry{Step: w.step, After: at.after, Actor: actor, Text: text})
	j.line(w, actor+": "+text)
}

// request records a request. It is part of the history, but not of the story.
func (j *Journal) request(w *World, what, how string) { j.line(w, what+" -> "+how) }

// body prints the body of a request for debugging. It is not part of the history.
func (j *Journal) body(text []byte) {
	const most = 4000
	if j.to != nil && len(text) > 0 {
		_, _ = fmt.Fprintf(j.to, "    > %s\n", text[:min(len(text), most)]) // The output is only for debugging.
	}
}

func (j *Journal) line(w *World, text string) {
	j.last = text
	line := fmt.Sprintf("%d %s %s\n", w.step, w.Elapsed().Truncate(time.Millisecond), text)
	_, _ = io.WriteString(j.sum, line) // It never fails.
	if j.to != nil {
		_, _ = io.WriteString(j.to, line) // The output is only for debugging.
	}
}

// Hash is a digest of the whole history.
func (j *Journal) Hash() string { return hex.EncodeToString(j.sum.Sum(nil)[:8]) }

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // Kubernetes types can be encoded.
	}
	return text
}
