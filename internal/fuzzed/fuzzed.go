// Package fuzzed has the common bounds on memory for fuzz tests with untrusted input. It is for tests only.
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
	// Most is the maximum allocation for an input of MiB bytes, in bytes.
	Most = 64 << 20
	// MiB is the maximum size of a tested input, in bytes.
	MiB = 1 << 20

	// always is the base allocation for any input, even an empty one: filled caches and buffers.
	always = 8 << 20
	// perByte is the allocation for each byte of input, in addition. An input of one MiB may thus allocate Most.
	perByte = (Most - always) / MiB
)

// For returns the maximum allocation for an input of a size, in bytes. It shrinks with the input below [Most], because
// fuzzers rarely generate large inputs. So a small input with a large allocation fails, too.
func For(size int) uint64 { return always + perByte*uint64(size) }

// Filled returns a text of one MiB: before, then repeated as often as it fits (up to most times), then spaces, then
// behind. The last repetition lacks its last byte, which is a separator.
func Filled(most int, before, repeated, behind string) []byte {
	n := min((MiB-len(before)-len(behind))/len(repeated), most)
	text := before + strings.Repeat(repeated, n)[:n*len(repeated)-1]
	return []byte(text + strings.Repeat(" ", MiB-len(text)-len(behind)) + behind)
}

// Run calls do, which processes an input and returns its size. Run fails if do allocates more than [For] of that size,
// or if one of the counts changes. Counts are for forbidden events, such as [refract.dev/internal/rescue.Count]: a
// rescued panic is a panic.
//
// The sum of all allocations counts, not the memory in use at one time, which is less and depends on the garbage
// collector. Allocations of other goroutines at the same time count as well.
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

// Review is [Run] for a handler and a review. It returns the answer.
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
