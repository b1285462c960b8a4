package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows the progress of the simulation: on a terminal as a line that is overwritten, elsewhere as a new line
// every ten seconds.
type progress struct {
	to       io.Writer
	terminal bool
	every    time.Duration
	plan     plan

	began, last  time.Time
	seeds, steps int
	drawn        bool // Whether the cursor is at the end of a line.
}

func newProgress(to io.Writer, p plan) *progress {
	now := time.Now()
	if f, ok := to.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progress{to: to, terminal: true, every: 100 * time.Millisecond, plan: p, began: now}
	}
	return &progress{to: to, every: 10 * time.Second, plan: p, began: now, last: now}
}

// show counts a seed, and shows the progress from time to time.
func (p *progress) show(now time.Time, steps, violations int) {
	p.seeds++
	p.steps += steps
	if now.Sub(p.last) < p.every || p.plan.Story {
		return
	}
	p.last = now
	took := now.Sub(p.began)
	left := time.Duration(float64(took) / float64(p.seeds) * float64(p.plan.Seeds-uint64(p.seeds)))
	text := fmt.Sprintf("%d of %d seeds, %d steps, %.0f a second, violations: %d, %s left",
		p.seeds, p.plan.Seeds, p.steps, float64(p.steps)/took.Seconds(), violations, left.Round(time.Second))
	if !p.terminal {
		fmt.Fprintln(p.to, text)
		return
	}
	fmt.Fprintf(p.to, "\r%s\x1b[K", text)
	p.drawn = true
}

// end ends the line, so that other text begins on a new line.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.to)
		p.drawn = false
	}
}
