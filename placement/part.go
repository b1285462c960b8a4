package placement

import (
	"cmp"
	"strings"
)

// part is a cluster that may get a share.
type part struct {
	cluster string
	placed  bool  // Whether the object is there.
	current int64 // What is there; 0 also if that is not known.
	lo, hi  int64
	weight  uint64 // For Spread.
	rank    int64  // Greater ones come first: the weight, or the priority for Binpack.

	share int64
	anew  int64 // The share if nothing had to stay.

	open bool   // Whether spread has not decided on it yet.
	rest uint64 // The remainder of its quota.
}

func byRank(a, b *part) int {
	return cmp.Or(cmp.Compare(b.rank, a.rank), strings.Compare(a.cluster, b.cluster))
}
