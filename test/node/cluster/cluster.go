// Package cluster is a Kubernetes cluster of one Node, for tests of what only a real one does: containerd runs its
// containers, kube-proxy leads to its Services, and the kubelet asks whether they are well.
//
// Nothing of it is shared with the machine but the kernel. [Enter] has the tests run in namespaces of their own, with
// folders in memory where the parts of a node write, and a network that leads nowhere; whatever happens, the kernel takes
// these away with the last process in them. Root is needed for that, and Linux.
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

// Name is that of the Node.
const Name = "node"

// Topology is what the control planes have to be: two members that store objects, beside the hub.
func Topology() harness.Topology { return harness.Topology{Own: true, Members: 2, Address: Address} }

// Cluster is a cluster whose pods really run.
type Cluster struct {
	Env *harness.Env

	bin string // The folder of the programs.
	dir string // That of their configuration.
}

// containerd is where it listens, as everywhere.
const containerd = runDir + "/containerd/containerd.sock"

// New returns what is to be a cluster, beside a control plane of [Topology].
func New(env *harness.Env) (*Cluster, error) {
	root, err := harness.Root()
	return &Cluster{Env: env, bin: filepath.Join(root, "bin", "node"), dir: filepath.Join(env.Dir, "node")}, err
}

// Start starts what runs pods, and returns when the Node is ready and has the images.
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

// launch starts one of the programs of a node.
func (c *Cluster) launch(ctx context.Context, name string, ready func(context.Context) error, args ...string) error {
	return c.Env.Playground.Launch(ctx, "hub", playground.Program{
		Name: name, Path: filepath.Join(c.bin, name), Args: args, Env: []string{"PATH=" + c.bin + ":" + os.Getenv("PATH")}, Ready: ready,
	})
}

// kubelet is its name as a component.
const kubelet = "kubelet"

// StartKubelet starts the kubelet, at first or after [Cluster.StopKubelet], and returns when it says that it is well.
func (c *Cluster) StartKubelet(ctx context.Context) error {
	return c.launch(ctx, kubelet, answers("http://127.0.0.1:10248/healthz"),
		"--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.path("kubelet.kubeconfig"), "--hostname-override="+Name, "--node-ip="+Address)
}

// StopKubelet ends the kubelet. The pods run on.
func (c *Cluster) StopKubelet() error { return c.Env.Playground.Halt("hub", kubelet) }

// Ctr runs ctr of containerd in the namespace of Kubernetes, and returns what it prints.
func (c *Cluster) Ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", containerd, "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "ctr"), args...) //nolint:gosec // They are the tests'.
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// answers returns what tells whether a URL answers with 200.
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

// images gives the node the images of pods, and that of Refract under each name in [Images].
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

// Images are names of Refract's image on the node: the same content, which is another image to a Deployment.
func Images() []string { return []string{"refract.test/refract:old", "refract.test/refract:new"} }

// PodImage is the image of test/node/pod, which says what it sees.
const PodImage = podImage

// ready returns when pods can be scheduled to the Node.
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

// Keep copies the logs of the control plane, of the node's programs and of the pods to bin/node/log, where those of the last
// run are: all else goes with the node.
func (c *Cluster) Keep() error {
	to := filepath.Join(c.bin, "log")
	audit, err := c.Env.View.AuditLog("hub")
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(filepath.Dir(audit))), os.CopyFS(filepath.Join(to, "pods"), os.DirFS("/var/log/pods")))
}

// configure writes what the programs read.
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
