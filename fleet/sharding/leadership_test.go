package sharding

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLeadsAgain: an elected replica renews the Lease of the leader in time, or too late. After a late renewal it has
// not led for a while, and is notified when it leads again, as work from that time waits for it.
func TestLeadsAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		elected bool
		after   time.Duration
		want    int
	}{
		"InTime":  {"It has led all the time.", true, 79 * time.Second, 0},
		"TooLate": {"Its Lease had run out by its own clock.", true, 81 * time.Second, 1},
		"Elected": {"It has not led yet; its election tells so.", false, 81 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				l := &leadership{changed: func(bool) { told++ }}
				renew := func() { l.renew(time.Now().Add(80 * time.Second)) }
				renew()
				if tc.elected {
					l.elect(true)
					told = 0
				}
				<-time.After(tc.after)
				renew()
				if told != tc.want || l.holds() != tc.elected {
					t.Errorf("%s\nwant it to be told %d times, and to lead: %t; got %d, %t", tc.reason, tc.want, tc.elected, told, l.holds())
				}
			})
		})
	}
}
