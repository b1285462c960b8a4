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

// role is the role of a cluster. It determines which components the cluster has in addition to etcd and the API server.
type role int

const (
	full role = iota // All controllers, a scheduler and fake Nodes.
	bare             // No other components.
	hub              // Only controllers that do not run workloads; see hubControllers.
)

// The files of a cluster, relative to its folder. The processes have this folder as their working directory and get
// relative paths. So special characters in the path of the playground cannot break a flag.
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
	audit bool   // Whether the API server writes an audit log.
	large bool   // Whether etcd accepts requests that are larger than its default limit.

	address string // The address at which Pods reach the API server; empty if Pods are only simulated.

	ca, etcdCA *authority
	pairs      map[string]pair         // The keys are file names without extension.
	servers    map[Component]component // The components with the ports of their last start.
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

// prepare creates the folders and certificates of the cluster.
//
// etcd has its own authority, as in kubeadm, because the certificates of the cluster must not give access to its
// database.
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

// certify creates the cluster's authorities, certificates and keys.
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

// runsPods reports whether Pods of the cluster run in containers, and are not simulated.
func (c *cluster) runsPods() bool { return c.role == hub && c.address != "" }

// hosts returns the names and addresses of the API server.
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

// write writes a file of the cluster. Only its owner can read the file.
func (c *cluster) write(name string, content []byte) error {
	if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
		return fmt.Errorf("writing a file of %s: %w", c.Name, err)
	}
	return nil
}

// writeComponentKubeconfig writes the kubeconfig of a component. RBAC grants permissions to the user name.
func (c *cluster) writeComponentKubeconfig(name, user string) error {
	p, err := c.ca.issue(subject{name: user})
	if err != nil {
		return err
	}
	return writeKubeconfig(c.path(name), c.Cluster, c.ca.cert, p)
}

// writeAdminKubeconfig writes the kubeconfig of an administrator.
func (c *cluster) writeAdminKubeconfig(path string) error {
	return writeKubeconfig(path, c.Cluster, c.ca.cert, c.pairs[adminFile])
}

// client returns a client with the permissions of an administrator.
func (c *cluster) client() (*kubernetes.Clientset, error) {
	admin := c.pairs[adminFile]
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            c.Endpoint,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.cert, CertData: admin.cert, KeyData: admin.key},
		QPS:             -1, // No limit is needed, because the API server has no other users.
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", c.Name, err)
	}
	return client, nil
}
