package playground

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// role is what a cluster consists of beside its etcd and its API server.
type role int

const (
	full role = iota // All controllers, a scheduler, and fake Nodes.
	bare             // Nothing.
	hub              // The controllers that keep it clean.
)

// Files of a cluster, relative to its folder, which is the working directory of
// its processes: so nothing in the path of the playground can upset a flag.
const (
	certsDir          = "certs"
	caFile            = certsDir + "/ca"
	etcdCAFile        = certsDir + "/etcd-ca"
	etcdServerFile    = certsDir + "/etcd"
	etcdClientFile    = certsDir + "/etcd-client"
	apiServerFile     = certsDir + "/kube-apiserver"
	adminFile         = certsDir + "/admin"
	signingFile       = certsDir + "/service-accounts"
	controllersConfig = "kube-controller-manager.yaml"
	schedulerConfig   = "kube-scheduler.yaml"
	admissionFile     = "admission.yaml"
	kwokConfig        = "kwok.yaml"
	stagesFile        = "kwok-stages.yaml"
	auditPolicyFile   = "audit-policy.yaml"
	auditLogFile      = logsDir + "/audit.log"
	etcdData          = "etcd"
)

// cluster is a cluster of the playground.
type cluster struct {
	Cluster
	role  role
	dir   string // Absolute.
	audit bool   // Whether the API server writes down who has written what.
	large bool   // Whether etcd takes larger requests than by default.

	address string // At which Pods reach the API server; empty if none really runs anywhere.

	ca, etcdCA *authority
	pairs      map[string]pair         // By the name of the file, without its ending.
	servers    map[Component]component // As they were started last, with their ports.
}

func newCluster(dir, name string, r role) *cluster {
	return &cluster{
		Cluster: Cluster{Name: name, Kubeconfig: kubeconfigFile(dir, name), Traits: alike},
		role:    r,
		dir:     filepath.Join(dir, name),
		servers: map[Component]component{},
	}
}

// path returns the absolute path of one of the cluster's files.
func (c *cluster) path(name string) string {
	return filepath.Join(c.dir, filepath.FromSlash(name))
}

// prepare makes the cluster's folders and certificates.
//
// etcd trusts an authority of its own, as kubeadm has it: whoever is given a
// certificate by the cluster must not get at its database with that.
func (c *cluster) prepare() error {
	for _, dir := range []string{c.path(certsDir), c.path(logsDir), filepath.Dir(c.Kubeconfig)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a folder for %s: %w", c.Name, err)
		}
	}
	if err := c.certify(); err != nil {
		return fmt.Errorf("making the certificates of %s: %w", c.Name, err)
	}
	for name, p := range c.pairs {
		if err := errors.Join(c.write(name+".crt", p.cert), c.write(name+".key", p.key)); err != nil {
			return err
		}
	}
	if c.Traits.PodSecurity != "" {
		if err := c.write(admissionFile, admissionConfiguration(c.Traits.PodSecurity)); err != nil {
			return err
		}
	}
	policy := auditPolicy
	if c.runsPods() {
		policy += "- level: Metadata\n"
	}
	return c.write(auditPolicyFile, []byte(policy))
}

// certify makes the cluster's authorities, certificates and keys.
func (c *cluster) certify() error {
	var err error
	if c.ca, err = newAuthority(c.Name + "-ca"); err != nil {
		return err
	}
	if c.etcdCA, err = newAuthority(c.Name + "-etcd-ca"); err != nil {
		return err
	}
	hosts, err := c.hosts()
	if err != nil {
		return err
	}
	signing, err := newSigningKey()
	if err != nil {
		return err
	}
	c.pairs = map[string]pair{caFile: c.ca.pair, etcdCAFile: c.etcdCA.pair, signingFile: signing}

	for _, i := range []struct {
		file string
		by   *authority
		to   subject
	}{
		{etcdServerFile, c.etcdCA, subject{name: "etcd", hosts: []string{"127.0.0.1", "localhost"}}},
		{etcdClientFile, c.etcdCA, subject{name: "kube-apiserver"}},
		{apiServerFile, c.ca, subject{name: "kube-apiserver", hosts: hosts}},
		{adminFile, c.ca, subject{name: c.Name + "-admin", groups: []string{"system:masters"}}},
	} {
		if c.pairs[i.file], err = i.by.issue(i.to); err != nil {
			return err
		}
	}
	return nil
}

// runsPods reports whether its Pods really run.
func (c *cluster) runsPods() bool { return c.role == hub && c.address != "" }

// hosts are the names that the API server answers to.
func (c *cluster) hosts() ([]string, error) {
	service, err := c.Traits.address()
	if err != nil {
		return nil, err
	}
	out := append(slices.Clone(apiServerHosts), service)
	if c.address != "" {
		out = append(out, c.address)
	}
	return out, nil
}

// write writes a file of the cluster for its owner alone.
func (c *cluster) write(name string, content []byte) error {
	if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
		return fmt.Errorf("writing a file of %s: %w", c.Name, err)
	}
	return nil
}

// writeComponentKubeconfig lets a component in under the name that RBAC knows.
func (c *cluster) writeComponentKubeconfig(name, user string) error {
	p, err := c.ca.issue(subject{name: user})
	if err != nil {
		return err
	}
	return writeKubeconfig(c.path(name), c.Cluster, c.ca.cert, p)
}

// writeAdminKubeconfig writes a file that lets its user do everything.
func (c *cluster) writeAdminKubeconfig(path string) error {
	return writeKubeconfig(path, c.Cluster, c.ca.cert, c.pairs[adminFile])
}

// client returns an administrator's client.
func (c *cluster) client() (*kubernetes.Clientset, error) {
	admin := c.pairs[adminFile]
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            c.Endpoint,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.cert, CertData: admin.cert, KeyData: admin.key},
		QPS:             -1, // No limit: there is nobody to be kind to.
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", c.Name, err)
	}
	return client, nil
}
