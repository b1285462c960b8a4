package jitter

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestBetween calls Between with many names. Both bounds must occur, and all durations must be equally frequent.
func TestBetween(t *testing.T) {
	seen := map[time.Duration]int{}
	for i := range 3000 {
		seen[Between(strconv.Itoa(i), 3, 5)]++
	}
	if len(seen) != 3 || min(seen[3], seen[4], seen[5]) < 900 || Between("", 7, 7) != 7 {
		t.Errorf("Between(3, 5): want each of 3 values about 1,000 times, got %v", seen)
	}
}

// TestBetweenTimes calls Between with one name at times that differ only slightly.
func TestBetweenTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]int{}
		for range 3000 {
			once, again := Between("eu-1", 3, 5), Between("eu-1", 3, 5)
			if seen[once]++; once != again {
				t.Fatalf("Between at one time: got %d, then %d", once, again)
			}
			time.Sleep(time.Nanosecond)
		}
		if min(seen[3], seen[4], seen[5]) < 900 {
			t.Errorf("Between(3, 5): want each of 3 values about 1,000 times, got %v", seen)
		}
	})
}
