package playground

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// httpClient returns a client with the client certificate p, which trusts servers with certificates of a. The caller
// must close its idle connections.
func httpClient(a *authority, p pair) (*http.Client, error) {
	cert, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("reading a client certificate: %w", err)
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: a.pool(), Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}}, nil
}

// etcdProbe returns a function that checks whether etcd responds at a URL. done closes the connections of this
// function.
func (c *cluster) etcdProbe() (probe func(ctx context.Context, url string) error, done func(), err error) {
	client, err := httpClient(c.etcdCA, c.pairs[etcdClientFile])
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, url string) error { return get(ctx, client, url+"/health") }, client.CloseIdleConnections, nil
}

// apiServerProbe is like [cluster.etcdProbe], for the API server.
func (c *cluster) apiServerProbe() (probe func(ctx context.Context, url string) error, done func(), err error) {
	client, err := httpClient(c.ca, c.pairs[adminFile])
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, url string) error { return get(ctx, client, url+"/readyz") }, client.CloseIdleConnections, nil
}

// get returns an error unless the response to a GET request has status 200 and comes within five seconds.
func get(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // The connection can be reused only if the whole body is read.
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
