package manifest

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// concurrently calls do with each number below n, as many at a time as there are
// processors, and returns when all are done.
func concurrently(n int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}
