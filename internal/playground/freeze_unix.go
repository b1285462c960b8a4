//go:build unix

package playground

import (
	"fmt"
	"syscall"
)

// Freeze pauses a component until [Playground.Thaw]. The component keeps its port and its connections, but does not
// respond.
func (p *Playground) Freeze(cluster string, c Component) error {
	return p.signal(cluster, c, syscall.SIGSTOP, true)
}

// Thaw continues a frozen component.
func (p *Playground) Thaw(cluster string, c Component) error {
	return p.signal(cluster, c, syscall.SIGCONT, false)
}

func (p *Playground) signal(cluster string, c Component, signal syscall.Signal, frozen bool) error {
	_, process, err := p.lookUp(cluster, c)
	if err != nil {
		return err
	}
	if err := process.handle.Signal(signal); err != nil {
		return fmt.Errorf("%s: sending signal %q to %s: %w", cluster, signal, c, err)
	}
	process.frozen.Store(frozen)
	return nil
}
