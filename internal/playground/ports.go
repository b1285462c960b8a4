package playground

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// freePorts returns n different free ports of 127.0.0.1. Another process may take them before they are used.
func freePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // Closed only after all ports are found, so that they differ.
		at, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		ports = append(ports, int(at.Port()))
	}
	return ports, nil
}

// lostItsPort reports whether the process has ended because another process listens on its port.
func (p *process) lostItsPort() bool {
	if !p.ended() {
		return false
	}
	log, err := os.ReadFile(p.log)
	return err == nil && strings.Contains(string(log), "address already in use")
}

// local returns the URL of a port.
func local(port int) string {
	return fmt.Sprintf("https://127.0.0.1:%d", port)
}
