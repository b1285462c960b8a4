package member

import (
	"context"
	"sync"
)

// account counts the memory that one member takes in this process: for copies and other data that is kept, and for
// answers under way. Beyond a bound the member gets no more memory, and other members are not affected. It is safe for
// concurrent use.
type account struct {
	large chan struct{} // Holds one value for each large exchange.
	pages chan struct{} // Holds one value for each page that is being read.
	// decodes holds one value for each large object that is being decoded beyond its metadata. A goroutine that holds
	// one waits for nothing else, so decoding cannot deadlock.
	decodes chan struct{}

	mu      sync.Mutex
	copies  int
	kept    int // Bytes of copies and of the sets of their owned fields.
	fields  int // Bytes of the sets that keepFields admitted, a part of kept.
	buffers int // Bytes of the buffers of watches.
}

func newAccount() *account {
	return &account{
		large: make(chan struct{}, mostLarge), pages: make(chan struct{}, mostPagesAtOnce), decodes: make(chan struct{}, mostLarge),
	}
}

// keep reserves room for copies. If there is not enough room, keep reserves nothing, and returns the exceeded quantity
// and its bound. Negative numbers give room back.
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

// exchange is one request, or several requests that belong together, with their answers while these are in use. The
// sizes of the answers are added up. A watch is an exchange, too; its events follow each other and are not added up.
type exchange struct {
	account *account

	mu            sync.Mutex
	bytes, values int
	large, over   bool
}

type exchangeKey struct{}

// begin begins an exchange. All requests with the returned context belong to it. The caller must call end after its
// last use of their answers. A nested call continues the outer exchange, and its end does nothing.
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

// enlarge waits until the exchange may be large. A member has at most mostLarge large exchanges at the same time.
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
	if e.large || e.over { // Another answer of the exchange was faster, or the exchange has ended.
		<-e.account.large
	}
	e.large = !e.over
	return nil
}

// shrink ends the permission of enlarge, so that another exchange may be large.
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
