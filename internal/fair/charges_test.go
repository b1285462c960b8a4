package fair

import (
	"fmt"
	"testing"
	"time"
)

func TestCharges(t *testing.T) {
	const most = time.Second
	begin := time.Now()
	c := Charges{Most: most}
	if c.Over("a", begin) {
		t.Error("who has had nothing done is over")
	}
	c.Add("a", most, begin)
	if c.Over("a", begin) {
		t.Error("who has had as much done as may be is over")
	}
	c.Add("a", time.Millisecond, begin)
	if !c.Over("a", begin) || c.Over("b", begin) {
		t.Error("who has had more done than may be is over, and nobody else")
	}
	if c.Over("a", begin.Add(forgiven*time.Millisecond)) {
		t.Error("nothing is forgiven")
	}
	if c.Over("a", begin.Add(2*forgiven*most)); len(c.owed) != 0 {
		t.Errorf("who owes nothing is remembered: %v", c.owed)
	}
	for i := range 3 * mostCharged {
		c.Add(fmt.Sprint(i), most, begin)
		if len(c.owed) > mostCharged {
			t.Fatalf("%d namespaces are remembered, want %d at most", len(c.owed), mostCharged)
		}
	}
	c.Add("", 2*most, begin)
	if c.Over("", begin) {
		t.Error("what has no namespace is put behind what others need it for")
	}
}
