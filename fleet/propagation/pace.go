package propagation

import (
	"cmp"
	"time"
)

const (
	// mostAtOnce is the highest limit of concurrent writes to one member. appliersByMember is the lowest limit, which
	// applies to a member that is near, or slow by itself.
	mostAtOnce = 64
	// ownAtOnce is the number of concurrent writes reserved for each member. mostSpare is the number of further writes
	// that all members share. With eight writes for each of a thousand members, this process would be so busy that each
	// write exceeds the time limit of a request.
	ownAtOnce = 3
	mostSpare = 1024
	// The pause between trials while neither more nor fewer writes are better. It doubles from the first to the last.
	firstPaceRest = 2 * time.Second
	lastPaceRest  = 30 * time.Second
)

// A trial changes the limit if its rate is at least this multiple of the rate before: paceGain for twice as many
// writes, and paceKept for half as many.
const (
	paceGain = 1.4
	paceKept = 0.85
)

// pace decides the number of concurrent writes to a member. A distant member answers late even without load, and
// twice as many concurrent writes double its rate. At a member that is slow by itself, more writes only wait longer.
// A trial tells the two apart: pace measures the writes per second with twice as many concurrent writes, and
// occasionally with half as many. It measures only while more copies wait than may be written at the same time.
// Otherwise it keeps the limit that it found.
//
// It is not safe for concurrent use, and has no clock.
type pace struct {
	limit int
	// from is the limit before the current trial; zero if there is no trial.
	from int
	rate float64 // Writes per second with the limit from, or with limit if there is no trial.
	down bool    // The next trial has half as many writes.
	// again is the time of the next trial, on the clock of the argument of note. rest is the length of the last pause.
	again, rest time.Duration

	// skip is the number of running writes that began with another limit. n is the number of writes that ended after
	// those, since began.
	skip, n int
	began   time.Duration
	// strain is the number of running writes that were already running when another write failed.
	strain int
}

// note records the end of a write, and returns the new limit. strained is whether the write failed in a way that
// indicates an overloaded member. waiting is whether other copies wait for their turn. now is a duration since any
// fixed moment.
func (p *pace) note(strained, waiting bool, now time.Duration) int {
	together := p.strain > 0
	if together {
		p.strain--
	}
	switch {
	case p.limit == 0:
		p.settle(appliersByMember, 0)
	case strained && together: // An earlier failure has counted already.
	case strained:
		p.strain = p.limit - 1
		p.settle(max(p.limit/2, appliersByMember), p.rested(now))
	case !waiting:
		p.settle(cmp.Or(p.from, p.limit), p.again)
	case p.skip > 0:
		if p.skip--; p.skip == 0 {
			p.n, p.began = 0, now
		}
	default:
		if p.n++; p.n >= 2*p.limit && now > p.began {
			p.decide(float64(p.n)/(now-p.began).Seconds(), now)
		}
	}
	return p.limit
}

// decide chooses the next limit from the measured writes per second.
func (p *pace) decide(rate float64, now time.Duration) {
	switch {
	case p.from == 0 && rate < p.rate/2 && p.limit > appliersByMember: // The rate has halved: the member has changed.
		p.down = true
		p.try(rate, now)
	case p.from == 0 && now < p.again:
		p.rate = rate
		p.settle(p.limit, p.again)
	case p.from == 0, p.limit > p.from && rate >= paceGain*p.rate, p.limit < p.from && rate >= paceKept*p.rate:
		p.try(rate, now)
	default: // The trial failed: restore the limit and the rate from before.
		p.down = p.limit > p.from
		p.settle(p.from, p.rested(now))
	}
}

// try begins a trial with another limit: twice the present one, or half of it.
func (p *pace) try(rate float64, now time.Duration) {
	if p.from != 0 {
		p.rest = 0 // The last trial was successful.
	}
	p.rate = rate
	next := min(2*p.limit, mostAtOnce)
	if p.down {
		next = max(p.limit/2, appliersByMember)
	}
	if next == p.limit {
		p.down = !p.down
		p.settle(p.limit, p.rested(now))
		return
	}
	p.from, p.limit, p.skip = p.limit, next, p.limit
}

// rested doubles the pause, and returns the time of the next trial.
func (p *pace) rested(now time.Duration) time.Duration {
	p.rest = min(max(2*p.rest, firstPaceRest), lastPaceRest)
	return now + p.rest
}

// settle keeps a limit without trials until the given time.
func (p *pace) settle(limit int, again time.Duration) {
	p.from, p.limit, p.skip, p.again = 0, limit, limit, again
}
