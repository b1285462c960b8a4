package member

import (
	"context"
	"sync"
)

// account is what one member takes of the memory of this process: for what is kept of
// its answers, and for those that are in hand. Beyond a bound it gets no more, and no
// other member notices. It is safe for many goroutines.
type account struct {
	large chan struct{} // Has one for each exchange that is large.
	pages chan struct{} // Has one for each page that is asked for.
	// decodes has one for each large object of which more than the metadata is decoded. Who has it waits for nothing else.
	decodes chan struct{}

	mu      sync.Mutex
	copies  int
	kept    int // Bytes: of copies, and of what is known of their fields;
	fields  int // of the latter, without what is needed anyway.
	buffers int // Bytes of watches.
}

func newAccount() *account {
	return &account{
		large: make(chan struct{}, mostLarge), pages: make(chan struct{}, mostPagesAtOnce), decodes: make(chan struct{}, mostLarge),
	}
}

// keep takes room for copies, and says what would be too much, and what of it there may
// be: then it takes none. With numbers below zero it gives room back.
func (a *account) keep(copies, bytes int) (excess string, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case copies > 0 && a.copies+copies > mostCopies:
		return "copies", mostCopies
	case bytes > 0 && a.kept+bytes > mostKept:
		return "bytes to be known of copies", mostKept
	}
	a.copies += copies
	a.kept += bytes
	return "", 0
}

// keepFields takes room for a record of fields, and reports whether there was any. Its
// digest is kept in any case.
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

// must takes room for what cannot be done without, or gives it back.
func (a *account) must(bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept += bytes
}

// buffer takes room for the buffers of a watch, or gives it back, and reports whether
// there was any.
func (a *account) buffer(bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes > 0 && a.buffers+bytes > mostBuffers {
		return false
	}
	a.buffers += bytes
	return true
}

// turn waits until a page may be asked for; done must be called when it is not needed any
// more.
func (a *account) turn(ctx context.Context) (done func(), err error) {
	select {
	case a.pages <- struct{}{}:
		return func() { <-a.pages }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// decoding waits until an object may be decoded; done must be called when nothing of that is needed any more.
func (a *account) decoding(r *received) (done func()) {
	if a == nil || !r.isLarge() {
		return func() {}
	}
	a.decodes <- struct{}{}
	return func() { <-a.decodes }
}

// exchange is a request, or several that belong together, and what of the answers is in
// hand. What they have counts together. Or it is a watch, with one event after the other.
type exchange struct {
	account *account

	mu            sync.Mutex
	bytes, values int
	large, over   bool
}

type exchangeKey struct{}

// begin begins an exchange that lasts until end is called: by then nothing that was
// answered may be in hand any more. Requests with the context are part of it. One within
// another is the same.
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

// add counts what was read, and returns how much that is by now.
func (e *exchange) add(bytes, values int) (allBytes, allValues int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes += bytes
	e.values += values
	return e.bytes, e.values
}

// enlarge waits until the exchange may be large.
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
	if e.large || e.over { // Another answer of it was faster, or it has ended.
		<-e.account.large
	}
	e.large = !e.over
	return nil
}

// shrink lets another be large.
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
