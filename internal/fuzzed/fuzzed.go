// Package fuzzed limits the memory in fuzz tests with untrusted input. It is for tests only.
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
	// Most is the maximum allocation for an input of the size MiB, in bytes.
	Most = 64 << 20
	// MiB is the maximum size of a tested input, in bytes.
	MiB = 1 << 20

	// always is the allocation that any input may cause, even an empty one, for caches and buffers.
	always = 8 << 20
	// perByte is the additional allocation for each byte of input. With an input of 1 MiB, the sum is Most.
	perByte = (Most - always) / MiB
)

// For returns the maximum allocation for an input of this size, in bytes. Fuzzers rarely generate large inputs. A limit
// that depends on the size also finds small inputs that need too much memory.
func For(size int) uint64 { return always + perByte*uint64(size) }

// Filled returns a text of 1 MiB. It consists of the argument before, repetitions of the argument repeated, spaces, and
// the argument behind. The number of repetitions is as large as possible, but not larger than the argument most. The
// last byte of repeated is a separator; the last repetition lacks it.
func Filled(most int, before, repeated, behind string) []byte {
	n := min((MiB-len(before)-len(behind))/len(repeated), most)
	text := before + strings.Repeat(repeated, n)[:n*len(repeated)-1]
	return []byte(text + strings.Repeat(" ", MiB-len(text)-len(behind)) + behind)
}

// Run calls do, which processes an input and returns the size of the input. Run fails the test if do allocates more
// memory than [For] allows, or if the result of one of the functions in counts changes. These functions count forbidden
// events, such as panics that were rescued: see [refract.dev/internal/rescue.Count].
//
// Run compares the sum of all allocations and not the memory in use at one time, which depends on the garbage
// collector. Allocations by other goroutines at the same time are included.
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

// Review calls [Run] for a handler and the body of a review. It returns the handler's response.
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
