package manifest

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"refract.dev/internal/rescue"
)

// concurrently calls do with each number below n, on as many goroutines as there are processors, and waits for all. If
// a call panics, the others continue, and failed is called with its number and the panic as an error, concurrently with
// the other calls. After the end of ctx, no further calls begin.
func concurrently(ctx context.Context, n int, do func(i int), failed func(i int, err error)) {
	one := func(i int) (err error) {
		defer rescue.To(&err, klog.Background(), "reading a manifest")
		do(i)
		return nil
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := one(i); err != nil {
					failed(i, err)
				}
			}
		})
	}
	workers.Wait()
}
