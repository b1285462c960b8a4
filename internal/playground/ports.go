package playground

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
)

// Ports for servers are below those that operating systems give to outgoing connections, so that a server that restarts
// finds its port free. They are above those of kubelets and kube-proxies.
const (
	firstPort = 11000
	lastPort  = 29999
)

// FreePorts returns n different free ports of 127.0.0.1 from 11000 to 29999. Another process may use them before the
// caller does. It returns an error after 1,000 attempts.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)
	for attempt := 1; len(ports) < n; attempt++ {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // A port is not secret.
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		switch {
		case err == nil:
			defer l.Close() // The listeners are closed at the end, so that the ports are different.
			ports = append(ports, port)
		case attempt >= 1000:
			return nil, fmt.Errorf("finding %d free ports from %d to %d: %w", n, firstPort, lastPort, err)
		}
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
