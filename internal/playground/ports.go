package playground

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// freePorts returns n different ports of 127.0.0.1 on which nobody listens.
// Nothing keeps others from taking them.
func freePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // Not before all are found, or they might be the same.
		at, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		ports = append(ports, int(at.Port()))
	}
	return ports, nil
}

// lostItsPort says whether the process has ended because somebody else listens
// where it wanted to.
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
