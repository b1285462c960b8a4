package placement

import (
	"cmp"
	"strings"
)

// part is a cluster that may get a share.
type part struct {
	cluster string
	placed  bool  // Whether the cluster has the object.
	current int64 // Replicas on the cluster; 0 if unknown.
	lo, hi  int64
	weight  uint64 // The weight for Spread.
	rank    int64  // Greater ranks come first: the weight, or the priority for Binpack.

	share int64
	anew  int64 // The share if all replicas could move.

	open bool   // True until spread has decided on the share.
	rest uint64 // The remainder of its quota.
}

func byRank(a, b *part) int {
	return cmp.Or(cmp.Compare(b.rank, a.rank), strings.Compare(a.cluster, b.cluster))
}
