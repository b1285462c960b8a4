package playground

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// freePorts returns n different free ports of 127.0.0.1. Another process may use them before the caller does.
func freePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // The listeners are closed at the end, so that the ports are different.
		at, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		ports = append(ports, int(at.Port()))
	}
	return ports, nil
}

// lostItsPort reports whether the process has ended because another process uses its port.
func (p *process) lostItsPort() bool {
	if !p.ended() {
		return false
	}
	log, err := os.ReadFile(p.log)
	return err == nil && strings.Contains(string(log), "address already in use")
}

// local returns the URL of a port on this machine.
func local(port int) string {
	return fmt.Sprintf("https://127.0.0.1:%d", port)
}
