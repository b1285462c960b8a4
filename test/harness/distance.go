package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// segment is the number of bytes in a simulated packet: they are lost or arrive together. late is the maximum number of
// segments in transit.
const (
	segment = 1460
	late    = 8192
)

// Distance is a proxy that simulates a distant cluster. It delays all data. A lost segment arrives one round-trip time
// later, and also delays all segments after it, as in TCP. Distance does not simulate the lower throughput of a
// connection with losses.
type Distance struct {
	// Kubeconfig is the path of a kubeconfig that connects through the proxy.
	Kubeconfig string

	to       string
	away     time.Duration
	loss     float64
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool // Nil after Close.
	ended sync.WaitGroup
}

// Distant starts a proxy for a cluster with the given round-trip time, and a share of lost segments from 0 to 1. The
// caller must close it.
func (e *Env) Distant(cluster string, away time.Duration, loss float64) (*Distance, error) {
	cfg, err := clientcmd.LoadFromFile(e.Kubeconfig(cluster))
	if err != nil {
		return nil, err
	}
	var to *url.URL
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	for _, c := range cfg.Clusters {
		if to, err = url.Parse(c.Server); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		c.Server = "https://" + listener.Addr().String()
	}
	d := &Distance{
		Kubeconfig: filepath.Join(e.Dir, fmt.Sprintf("%s-%s.yaml", cluster, strings.ReplaceAll(listener.Addr().String(), ":", "-"))),
		to:         to.Host, away: away, loss: loss, listener: listener, conns: map[net.Conn]bool{},
	}
	text, err := clientcmd.Write(*cfg)
	if err := errors.Join(err, os.WriteFile(d.Kubeconfig, text, 0o600)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	d.ended.Go(d.accept)
	return d, nil
}

// Close stops the proxy and ends all connections through it.
func (d *Distance) Close() {
	_ = d.listener.Close()
	d.mu.Lock()
	for c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
	d.mu.Unlock()
	d.ended.Wait()
}

func (d *Distance) accept() {
	for {
		near, err := d.listener.Accept()
		if err != nil {
			return
		}
		far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", d.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		if !d.begin(near, far) {
			return
		}
		var both sync.WaitGroup
		both.Go(func() { d.carry(near, far) })
		both.Go(func() { d.carry(far, near) })
		d.ended.Go(func() {
			both.Wait()
			d.end(near, far)
		})
	}
}

func (d *Distance) begin(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		if d.conns == nil {
			_ = c.Close()
			continue
		}
		d.conns[c] = true
	}
	return d.conns != nil
}

func (d *Distance) end(conns ...net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(d.conns, c)
	}
}

// carry copies data from one side to the other until either side ends.
func (d *Distance) carry(from, to net.Conn) {
	type piece struct {
		bytes []byte
		at    time.Time
	}
	pieces := make(chan piece, late)
	var writing sync.WaitGroup
	writing.Go(func() {
		failed := false
		for p := range pieces {
			if <-time.After(time.Until(p.at)); !failed {
				_, err := to.Write(p.bytes)
				failed = err != nil
			}
			if failed {
				_ = from.Close() // No further data is read.
			}
		}
		_ = to.Close()
	})
	var last time.Time
	for {
		buffer := make([]byte, segment)
		n, err := from.Read(buffer)
		at := time.Now().Add(d.away / 2)
		if rand.Float64() < d.loss { //nolint:gosec // The random number protects no secret.
			at = at.Add(d.away)
		}
		if at.Before(last) {
			at = last
		}
		if last = at; n > 0 {
			pieces <- piece{buffer[:n], at}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			break
		}
	}
	close(pieces)
	writing.Wait()
}
