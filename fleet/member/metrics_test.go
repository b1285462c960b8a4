package member

import (
	"net/http"
	"testing"
)

// TestCodes: the status codes of a member do not create an unbounded number of series.
func TestCodes(t *testing.T) {
	for number, want := range map[int]string{http.StatusConflict: "409", 0: "other", 123456: "other", -1: "other"} {
		if got := code(serverError(number, "x")); got != want {
			t.Errorf("%d: want %q, got %q", number, want, got)
		}
	}
}
