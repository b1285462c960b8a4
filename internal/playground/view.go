package playground

import (
	"context"
	"fmt"
	"os"
	"time"
)

// View gives access to a running playground. The supervisor has one, and other processes get one from [Attach].
type View struct {
	clusters []*cluster // The hub is first.
}

// Attach returns the view of the playground in dir. It returns [ErrNotRunning] if the playground is not running or not
// ready. The view can be used until the playground ends.
func Attach(ctx context.Context, dir string) (*View, error) {
	s, err := Find(ctx, dir)
	if err != nil {
		return nil, err
	}
	if s == nil || !s.Ready {
		return nil, fmt.Errorf("%w in %s, or it is not ready", ErrNotRunning, dir)
	}
	v := &View{}
	for _, known := range append([]Cluster{s.Hub}, s.Members...) {
		c := newCluster(s.Dir, known.Name, bare)
		c.Cluster = known
		if err := c.load(); err != nil {
			return nil, fmt.Errorf("reading the certificates of %s in %s: %w", known.Name, s.Dir, err)
		}
		v.clusters = append(v.clusters, c)
	}
	return v, nil
}

// load reads the certificate authorities, and the certificates of an administrator.
func (c *cluster) load() (err error) {
	c.pairs = map[string]pair{}
	for _, name := range []string{caFile, etcdCAFile, etcdClientFile, adminFile} {
		var p pair
		if p.cert, err = os.ReadFile(c.path(name + ".crt")); err != nil {
			return err
		}
		if p.key, err = os.ReadFile(c.path(name + ".key")); err != nil {
			return err
		}
		c.pairs[name] = p
	}
	if c.ca, err = parseAuthority(c.pairs[caFile]); err != nil {
		return err
	}
	c.etcdCA, err = parseAuthority(c.pairs[etcdCAFile])
	return err
}

// Hub returns the hub.
func (v *View) Hub() Cluster {
	return v.clusters[0].Cluster
}

// Members returns the member clusters in the order of their numbers.
func (v *View) Members() []Cluster {
	out := make([]Cluster, 0, len(v.clusters)-1)
	for _, c := range v.clusters[1:] {
		out = append(out, c.Cluster)
	}
	return out
}

// AuditLog returns the path of the audit log of the cluster's API server. The log exists only with [Options.Audit]. A
// revived API server appends to it.
func (v *View) AuditLog(cluster string) (string, error) {
	at, err := v.cluster(cluster)
	if err != nil {
		return "", err
	}
	return at.path(auditLogFile), nil
}

// ClientCertificate returns a client certificate and its key, in PEM, for a user with these groups. It is valid until
// the given time, which may be in the past.
func (v *View) ClientCertificate(cluster, user string, groups []string, until time.Time) (cert, key []byte, err error) {
	at, err := v.cluster(cluster)
	if err != nil {
		return nil, nil, err
	}
	out, err := at.ca.issue(subject{name: user, groups: groups, until: until})
	return out.cert, out.key, err
}

// cluster returns the cluster of this name.
func (v *View) cluster(name string) (*cluster, error) {
	for _, c := range v.clusters {
		if c.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("there is no cluster %q in the playground", name)
}
