// Package cluster is a Kubernetes cluster with one real Node, for tests of behavior that only a real Node has:
// containerd runs the containers, kube-proxy routes to Services, and the kubelet probes pods.
//
// The cluster shares only the kernel with the machine. [Enter] runs the tests in separate Linux namespaces, with
// folders in memory for the files of the Node, and a network without a route to other networks. The kernel removes all
// of this when the last process ends. This needs root and Linux.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

// Name is the name of the Node.
const Name = "node"

// Topology returns the control planes of the cluster: a hub, and two members that only store objects.
func Topology() harness.Topology { return harness.Topology{Own: true, Members: 2, Address: Address} }

// Cluster is a cluster whose Node runs pods.
type Cluster struct {
	Env *harness.Env

	bin string // Folder of the programs.
	dir string // Folder of their configuration.
}

// containerd is the path of the socket of containerd.
const containerd = runDir + "/containerd/containerd.sock"

// New returns a cluster that is not started yet, for a control plane of [Topology].
func New(env *harness.Env) (*Cluster, error) {
	root, err := harness.Root()
	return &Cluster{Env: env, bin: filepath.Join(root, "bin", "node"), dir: filepath.Join(env.Dir, "node")}, err
}

// Start starts the programs of the node, and returns when the Node is ready and has the images.
func (c *Cluster) Start(ctx context.Context) error {
	if err := c.configure(); err != nil {
		return fmt.Errorf("configuring a node: %w", err)
	}
	if err := c.launch(ctx, "containerd", func(ctx context.Context) error {
		_, err := c.Ctr(ctx, "version")
		return err
	}, "--config", c.path("containerd.toml")); err != nil {
		return err
	}
	if err := c.images(ctx); err != nil {
		return fmt.Errorf("giving the node images: %w", err)
	}
	if err := c.StartKubelet(ctx); err != nil {
		return err
	}
	if err := c.launch(ctx, "kube-proxy", answers("http://127.0.0.1:10256/healthz"), "--config", c.path("kube-proxy.yaml")); err != nil {
		return err
	}
	return c.ready(ctx)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// launch starts a program of the node.
func (c *Cluster) launch(ctx context.Context, name string, ready func(context.Context) error, args ...string) error {
	return c.Env.Playground.Launch(ctx, "hub", playground.Program{
		Name: name, Path: filepath.Join(c.bin, name), Args: args, Env: []string{"PATH=" + c.bin + ":" + os.Getenv("PATH")}, Ready: ready,
	})
}

// kubelet is the name of the kubelet as a component.
const kubelet = "kubelet"

// StartKubelet starts the kubelet, also after [Cluster.StopKubelet], and returns when it is healthy.
func (c *Cluster) StartKubelet(ctx context.Context) error {
	return c.launch(ctx, kubelet, answers("http://127.0.0.1:10248/healthz"),
		"--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.path("kubelet.kubeconfig"), "--hostname-override="+Name, "--node-ip="+Address)
}

// StopKubelet stops the kubelet. Pods continue to run.
func (c *Cluster) StopKubelet() error { return c.Env.Playground.Halt("hub", kubelet) }

// Ctr runs containerd's ctr in the namespace of Kubernetes, and returns its output.
func (c *Cluster) Ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", containerd, "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "ctr"), args...) //nolint:gosec // The arguments come from tests.
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// answers returns a function that returns nil if a URL answers with 200.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", url, resp.Status, body)
		}
		return nil
	}
}

// images imports the images of the test pods, and Refract's image under each name in [Images].
func (c *Cluster) images(ctx context.Context) error {
	for file, name := range map[string]string{"pod.tar": podImage, "pause.tar": sandboxImage} {
		if err := writeImage(c.path(file), name, filepath.Join(c.bin, "pod")); err != nil {
			return err
		}
		if _, err := c.Ctr(ctx, "images", "import", c.path(file)); err != nil {
			return err
		}
	}
	if _, err := c.Ctr(ctx, "images", "import", filepath.Join(c.bin, "dist", "refract_image.tar")); err != nil {
		return err
	}
	all, err := c.Ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		return err
	}
	for name := range strings.Lines(all) {
		if name = strings.TrimSpace(name); strings.Contains(name, "/refract:") {
			_, err := c.Ctr(ctx, append([]string{"images", "tag", "--force", name}, Images()...)...)
			return err
		}
	}
	return fmt.Errorf("the archive of make dist has no image of Refract among\n%s", all)
}

// Images returns the names of Refract's image on the Node. Both have the same content, but a Deployment sees two
// different images.
func Images() []string { return []string{"refract.test/refract:old", "refract.test/refract:new"} }

// PodImage is the image of test/node/pod, which prints its environment and files.
const PodImage = podImage

// ready waits until pods can be scheduled to the Node.
func (c *Cluster) ready(ctx context.Context) error {
	api, err := c.Env.Client("hub")
	if err != nil {
		return err
	}
	return harness.Await(ctx, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := api.Get(ctx, client.ObjectKey{Name: Name}, node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				return nil
			}
		}
		return fmt.Errorf("the Node is not ready: %v, taints %v", node.Status.Conditions, node.Spec.Taints)
	})
}

// Keep copies the logs of the control plane, of the Node's programs and of the pods to bin/node/log, in place of those
// of the previous run. All other files disappear with the Node.
func (c *Cluster) Keep() error {
	to := filepath.Join(c.bin, "log")
	audit, err := c.Env.View.AuditLog("hub")
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(filepath.Dir(audit))), os.CopyFS(filepath.Join(to, "pods"), os.DirFS("/var/log/pods")))
}

// configure writes the configuration files of the programs.
func (c *Cluster) configure() error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	access, err := c.Env.Access("hub")
	if err != nil {
		return err
	}
	text := strings.NewReplacer(
		"BIN", c.bin, "DIR", c.dir, "RUN", runDir, "CONTAINERD", containerd, "SANDBOX", sandboxImage, "NAME", Name,
		"CGROUP", "/"+os.Getenv(groupVariable),
	)
	files := map[string][]byte{"ca.crt": access.CA}
	for name, content := range configuration {
		files[name] = []byte(text.Replace(content))
	}
	for name, user := range map[string]struct {
		name   string
		groups []string
	}{
		"kubelet.kubeconfig":    {"system:node:" + Name, []string{"system:nodes"}},
		"kube-proxy.kubeconfig": {"system:kube-proxy", nil},
	} {
		const lifetime = 24 * time.Hour
		cert, key, err := c.Env.View.ClientCertificate("hub", user.name, user.groups, time.Now().Add(lifetime))
		if err != nil {
			return err
		}
		if files[name], err = clientcmd.Write(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: access.Endpoint, CertificateAuthorityData: access.CA}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{user.name: {ClientCertificateData: cert, ClientKeyData: key}},
			Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: user.name}},
			CurrentContext: "hub",
		}); err != nil {
			return err
		}
	}
	var errs []error
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o700); err != nil {
			return err
		}
		errs = append(errs, os.WriteFile(c.path(name), content, 0o600))
	}
	return errors.Join(errs...)
}
