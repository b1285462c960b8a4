package member

import (
	"context"
	"sync"
)

// account counts the memory that this process uses for one member: for copies and other stored data, and for the
// answers that are being read. When a bound is reached, this member gets no more memory; other members are not
// affected. It is safe for concurrent use.
type account struct {
	large chan struct{} // Holds one value for each large exchange.
	pages chan struct{} // Holds one value for each page that is being read.
	// decodes holds one value for each large object that is being decoded beyond its metadata. A goroutine that holds
	// one waits for nothing else, so decoding cannot deadlock.
	decodes chan struct{}

	mu      sync.Mutex
	copies  int
	kept    int // Bytes of the copies, including their sets of owned fields.
	fields  int // Bytes of the sets that keepFields admitted, a part of kept.
	buffers int // Bytes of the buffers of watches.
}

func newAccount() *account {
	return &account{
		large: make(chan struct{}, mostLarge), pages: make(chan struct{}, mostPagesAtOnce), decodes: make(chan struct{}, mostLarge),
	}
}

// keep reserves room for copies. If there is not enough room, keep reserves nothing, and returns the name of the
// exceeded quantity and its bound. Negative numbers give room back.
func (a *account) keep(copies, bytes int) (excess string, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case copies > 0 && a.copies+copies > mostCopies:
		return "copies", mostCopies
	case bytes > 0 && a.kept+bytes > mostKept:
		return "bytes of known copies", mostKept
	}
	a.copies += copies
	a.kept += bytes
	return "", 0
}

// keepFields reserves room for a set of owned fields, and reports whether there was room. The digest of the set is kept
// in any case. A negative number gives room back.
func (a *account) keepFields(bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes > 0 && (a.fields+bytes > mostOfFields || a.kept+bytes > mostKept) {
		return false
	}
	a.fields += bytes
	a.kept += bytes
	return true
}

// must reserves room without a check of the bound. A negative number gives it back.
func (a *account) must(bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept += bytes
}

// buffer reserves room for the buffers of a watch, and reports whether there was room. A negative number gives it back.
func (a *account) buffer(bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes > 0 && a.buffers+bytes > mostBuffers {
		return false
	}
	a.buffers += bytes
	return true
}

// turn waits until a page may be requested. The caller must call done after its last use of the page.
func (a *account) turn(ctx context.Context) (done func(), err error) {
	select {
	case a.pages <- struct{}{}:
		return func() { <-a.pages }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// decoding waits until an object may be decoded; small objects do not wait. The caller must call done after its last
// use of the decoded object.
func (a *account) decoding(r *received) (done func()) {
	if a == nil || !r.isLarge() {
		return func() {}
	}
	a.decodes <- struct{}{}
	return func() { <-a.decodes }
}

// exchange is one request or several related requests. It lasts until the caller no longer uses their answers, and adds
// up the sizes of these answers. A watch is an exchange, too, but the size of each event is counted separately.
type exchange struct {
	account *account

	mu            sync.Mutex
	bytes, values int
	large, over   bool
}

type exchangeKey struct{}

// begin begins an exchange. All requests with the returned context belong to it. The caller must call end when it no
// longer uses the answers. A nested call continues the outer exchange, and its end does nothing.
func (a *account) begin(ctx context.Context) (_ context.Context, end func()) {
	if exchangeOf(ctx) != nil {
		return ctx, func() {}
	}
	e := &exchange{account: a}
	return context.WithValue(ctx, exchangeKey{}, e), e.end
}

func exchangeOf(ctx context.Context) *exchange {
	e, _ := ctx.Value(exchangeKey{}).(*exchange)
	return e
}

// add counts data that was read, and returns the totals of the exchange.
func (e *exchange) add(bytes, values int) (allBytes, allValues int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes += bytes
	e.values += values
	return e.bytes, e.values
}

// enlarge waits until the exchange may read a large answer. At most mostLarge exchanges of a member may do so at the
// same time. The permission lasts until [exchange.shrink].
func (e *exchange) enlarge(ctx context.Context) error {
	e.mu.Lock()
	large := e.large
	e.mu.Unlock()
	if large {
		return nil
	}
	select {
	case e.account.large <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.large || e.over { // Another answer of the exchange got the permission meanwhile, or the exchange has ended.
		<-e.account.large
	}
	e.large = !e.over
	return nil
}

// shrink gives the permission of [exchange.enlarge] back.
func (e *exchange) shrink() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.large {
		<-e.account.large
		e.large = false
	}
}

func (e *exchange) end() {
	e.shrink()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}
