package propagation

import (
	"cmp"
	"time"
)

const (
	// mostAtOnce is how many writes to one member may be under way, and appliersByMember how few: so many are
	// under way to a member that is near, or that is slow by itself.
	mostAtOnce = 64
	// ownAtOnce is how many of them no other member can take, and mostSpare how many may be under way to all members together
	// beyond these. A thousand members with eight each would have what this process has to do for a write wait
	// for longer than a request may take.
	ownAtOnce = 3
	mostSpare = 1024
	// For so long nothing is tried when more writes were no faster, and fewer were slower: longer each time, up to the last.
	firstPaceRest = 2 * time.Second
	lastPaceRest  = 30 * time.Second
)

// How much faster twice as many writes have to be, and how fast half of them may be, to be chosen.
const (
	paceGain = 1.4
	paceKept = 0.85
)

// pace decides how many writes to a member are to be under way. A member that is far away answers
// late however little it has to do, and twice as many writes at a time are twice as fast. One that is slow by itself only has more
// of them wait. The two are told apart by trying: how many writes a second are there with twice as many under way, and now and
// then with half as many. It measures while more wait than may be under way, and else leaves it at what was found.
//
// It is not safe for concurrent use, and has no clock.
type pace struct {
	limit int
	// from is the limit before the one that is being tried; zero if none is.
	from int
	rate float64 // Writes a second, with from, or with the limit.
	down bool    // Half as many are tried next.
	// again is when something is tried next, by the time that note is given, and rest for how long nothing was tried last.
	again, rest time.Duration

	// skip is how many of those writes are still to come that began with another limit, n how many came after them, since began.
	skip, n int
	began   time.Duration
	// strain is how many of those writes are still to end that were under way when one before them failed.
	strain int
}

// note takes that a write has ended; whether it failed in a way which speaks of a member that is overloaded, and whether others
// wait for their turn. It returns how many are to be under way from now on. The time is since any moment.
func (p *pace) note(strained, waiting bool, now time.Duration) int {
	together := p.strain > 0
	if together {
		p.strain--
	}
	switch {
	case p.limit == 0:
		p.settle(appliersByMember, 0)
	case strained && together: // The member was found to be overloaded already.
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

// decide takes how many writes a second there are.
func (p *pace) decide(rate float64, now time.Duration) {
	switch {
	case p.from == 0 && rate < p.rate/2 && p.limit > appliersByMember: // It is another member than it was.
		p.down = true
		p.try(rate, now)
	case p.from == 0 && now < p.again:
		p.rate = rate
		p.settle(p.limit, p.again)
	case p.from == 0, p.limit > p.from && rate >= paceGain*p.rate, p.limit < p.from && rate >= paceKept*p.rate:
		p.try(rate, now)
	default: // It is left at what was before, and the rate is that of before.
		p.down = p.limit > p.from
		p.settle(p.from, p.rested(now))
	}
}

// try begins to try another limit: twice the one that there is, or half of it.
func (p *pace) try(rate float64, now time.Duration) {
	if p.from != 0 {
		p.rest = 0 // What was tried is better.
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

// rested returns until when nothing is tried.
func (p *pace) rested(now time.Duration) time.Duration {
	p.rest = min(max(2*p.rest, firstPaceRest), lastPaceRest)
	return now + p.rest
}

// settle has a limit stay until then.
func (p *pace) settle(limit int, again time.Duration) {
	p.from, p.limit, p.skip, p.again = 0, limit, limit, again
}
