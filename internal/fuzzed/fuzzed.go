// Package fuzzed holds what fuzz targets of what others write have in common: the most
// memory that one input may take. It is for tests only.
package fuzzed

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

const (
	// Most is how many bytes an input of MiB bytes may take, whatever is in it.
	Most = 64 << 20
	// MiB is how long an input may be that is looked at.
	MiB = 1 << 20

	// always is what any input may take, be it empty: caches that are filled, and buffers.
	always = 8 << 20
	// perByte is what each byte of it may take besides, so that one of a MiB sums to Most.
	perByte = (Most - always) / MiB
)

// For returns how many bytes an input of a size may take: as much less than [Most] as it
// is smaller, so that what is small and takes much is found, too, by a fuzzer that hardly
// ever makes what is large.
func For(size int) uint64 { return always + perByte*uint64(size) }

// Filled returns a text of a MiB: as many repetitions of a text as there is room for between
// what is before and behind them, but so many at most; and spaces. The last of them is without
// its last byte, which separates it from the next.
func Filled(most int, before, repeated, behind string) []byte {
	n := min((MiB-len(before)-len(behind))/len(repeated), most)
	text := before + strings.Repeat(repeated, n)[:n*len(repeated)-1]
	return []byte(text + strings.Repeat(" ", MiB-len(text)-len(behind)) + behind)
}

// Run does what is done with an input, and returns its size; it fails if that allocates
// more than it may, or if one of the counts has changed afterwards. They are of what must not
// happen, such as [refract.dev/internal/rescue.Count]: a panic that was rescued is a panic.
//
// It is all that is allocated which counts, and not what is held at the same time: there is
// less of that, and how much depends on when the garbage is collected. What other
// goroutines allocate meanwhile counts as well.
func Run(tb testing.TB, do func() (size int), counts ...func() int) {
	tb.Helper()
	was := make([]int, len(counts))
	for i, count := range counts {
		was[i] = count()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	size := do()
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, For(size); took > most {
		tb.Errorf("want at most %d KiB of memory for %d KiB, got %d KiB", most>>10, size>>10, took>>10)
	}
	for i, count := range counts {
		if n := count() - was[i]; n != 0 {
			tb.Errorf("want nothing to be rescued, got %d panics", n)
		}
	}
}

// Review is [Run] for what a handler does with a review of a size, and returns what it
// answers.
func Review(tb testing.TB, h http.Handler, body []byte, counts ...func() int) *httptest.ResponseRecorder {
	tb.Helper()
	w := httptest.NewRecorder()
	Run(tb, func() int {
		r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		return len(body)
	}, counts...)
	return w
}
